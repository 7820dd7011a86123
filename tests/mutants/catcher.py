"""Runs the simulation or a test and says whether it found a fault.

Found is only what says so itself: a violated invariant of the simulation, a
CHECK, a sanitizer's report, a failed expectation of a test. A program that
dies otherwise, or hangs, has not found anything.
"""

import concurrent.futures
import os
import re
import subprocess
import time

# Seeds that one run of the simulation takes.
CHUNK = 10
TEST_SECONDS = 300


class Finding:
    """What came of it. caught, how (a line for people), seed (of sim)."""

    def __init__(self, caught, how, seed=None):
        self.caught, self.how, self.seed = caught, how, seed


def run(command, seconds, folder=None):
    """Output and exit status; -1 for a program that took too long."""
    process = subprocess.Popen(command, cwd=folder, text=True,
                               errors="replace", stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT)
    try:
        output, _ = process.communicate(timeout=seconds)
        return output, process.returncode
    except subprocess.TimeoutExpired:
        process.kill()
        output, _ = process.communicate()
        return output, -1


def own_words(output):
    """What a program says before it ends itself; None if it says nothing."""
    found = re.search(r"(\S+): (CHECK failed: .*)", output)
    if found:
        return f"{os.path.basename(found.group(1))}: {found.group(2)}"
    found = re.search(r"(ERROR: \w+Sanitizer|runtime error): .*", output)
    return found.group(0) if found else None


def death(status):
    return "hangs" if status == -1 else f"dies with status {status}"


# --- The simulation.

def first_in(output, status, first, count):
    """The finding of a run over `count` seeds from `first`; None if clean."""
    seed = first
    for line in output.split("\n"):
        found = re.match(r"seed (\d+):", line)
        if found:
            seed = int(found.group(1))
        found = re.match(r"\s*VIOLATION (.*)", line)
        if found:
            return Finding(True, found.group(1), seed)
    if status == 0:
        return None
    # It ended in the seed after the last that it told of.
    told = re.findall(r"^seed (\d+):", output, re.MULTILINE)
    seed = min(int(told[-1]) + 1 if told else first, first + count - 1)
    words = own_words(output)
    return Finding(bool(words), words or death(status), seed)


def simulate(program, first, count, seconds):
    output, status = run([program, f"--seed={first}", f"--count={count}",
                          "--verbose"], seconds)
    return first_in(output, status, first, count)


def seconds_a_seed(program):
    """How long a schedule takes here and now."""
    began = time.monotonic()
    run([program, "--seed=1", "--count=8"], 600)
    return (time.monotonic() - began) / 8


class Hunt:
    """Looks for a seed that shows a fault."""

    def __init__(self, first, jobs, seconds):
        self.first, self.jobs = first, jobs
        # Of one schedule, when all is well; a fault may slow it down.
        self.limit = 30 + CHUNK * 20 * seconds

    def sim(self, program, seeds):
        starts = list(range(self.first, self.first + seeds, CHUNK))
        with concurrent.futures.ThreadPoolExecutor(self.jobs) as pool:
            for at in range(0, len(starts), self.jobs):
                wave = starts[at:at + self.jobs]
                counts = [min(CHUNK, self.first + seeds - s) for s in wave]
                findings = pool.map(
                    lambda start, count: simulate(program, start, count,
                                                  self.limit), wave, counts)
                for finding in findings:
                    if finding:
                        return finding
        return Finding(False, f"survives {seeds} seeds")

    def is_quiet(self, program, seed):
        """The sound program finds nothing with this seed."""
        return simulate(program, seed, 1, self.limit) is None


# --- A test.

def test(program, selection, folder):
    """None if it passes."""
    output, status = run([program, f"--gtest_filter={selection}",
                          "--gtest_brief=1"], TEST_SECONDS, folder)
    if re.search(r"Running 0 tests", output):
        return Finding(False, f"no test is named {selection}")
    if status == 0:
        return None
    failed = re.search(r"^\[  FAILED  \] ([\w/.]+)", output, re.MULTILINE)
    words = own_words(output)
    if failed:
        return Finding(True, f"FAILED {failed.group(1)}")
    return Finding(bool(words), words or death(status))
