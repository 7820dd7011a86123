"""Processes of a benchmark: measuring programs that are told what to do, and
daemons that say when they are ready.
"""

import os
import selectors
import signal
import subprocess
import time

STOP_SECONDS = 20


class BenchError(Exception):
    """What a person has to know; ends the row or the run."""


class Skip(Exception):
    """Why a row cannot be measured here."""


def prefix_of(uid):
    """Runs what follows as that user, who needs no name."""
    if uid is None or os.geteuid() != 0:
        return []
    return ["setpriv", "--reuid", str(uid), "--regid", str(uid),
            "--clear-groups", "--no-new-privs", "--inh-caps=-all", "--"]


def words(values):
    return " ".join(f"{name}={value}" for name, value in values.items())


class Program:
    """A measuring program (command_loop.h): one line in, one line out."""

    def __init__(self, command, uid=None, prefix=(), log=None):
        self.name = os.path.basename(command[0])
        self.lines = b""
        errors = open(log, "wb") if log else None
        self.process = subprocess.Popen(
            [*prefix, *prefix_of(uid), *command], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=errors, start_new_session=True)
        if errors:
            errors.close()

    @property
    def pid(self):
        return self.process.pid

    def begin(self, verb, **values):
        try:
            self.process.stdin.write(f"{verb} {words(values)}\n".encode())
            self.process.stdin.flush()
        except BrokenPipeError:
            raise BenchError(f"{self.name} has ended") from None

    def end(self, seconds=120):
        """What the command that was begun has answered, as numbers by name."""
        line = self.read_line(seconds)
        kind, _, rest = line.partition(" ")
        if kind != "ok":
            raise BenchError(f"{self.name}: {rest or line}")
        return {name: int(value) for name, value in
                (word.split("=") for word in rest.split())}

    def do(self, verb, seconds=120, **values):
        self.begin(verb, **values)
        return self.end(seconds)

    def read_line(self, seconds):
        deadline = time.monotonic() + seconds
        output = self.process.stdout
        with selectors.DefaultSelector() as selector:
            selector.register(output, selectors.EVENT_READ)
            while b"\n" not in self.lines:
                left = deadline - time.monotonic()
                if left <= 0 or not selector.select(left):
                    raise BenchError(
                        f"{self.name} has not answered within {seconds} s")
                some = os.read(output.fileno(), 65536)
                if not some:
                    raise BenchError(f"{self.name} has ended")
                self.lines += some
        line, _, self.lines = self.lines.partition(b"\n")
        return line.decode()

    def stop(self):
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass  # It has ended with words of ours unread.
        stop_process(self.process)
        self.process.stdout.close()


def signal_group(process, how):
    """It leads a session of its own: whatever it started hears it too."""
    try:
        os.killpg(process.pid, how)
    except ProcessLookupError:
        pass  # All have ended.


def stop_process(process, how=signal.SIGTERM):
    """Ends it and waits; SIGKILL where it does not, and for what it left."""
    signal_group(process, how)
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        pass
    signal_group(process, signal.SIGKILL)
    process.wait()


class Daemon:
    """firnkv-node, firnkv-catalog or a peer's server, with a log."""

    def __init__(self, name, command, log, uid=None, prefix=()):
        self.name = name
        self.log = log
        with open(log, "wb") as file:
            self.process = subprocess.Popen(
                [*prefix, *prefix_of(uid), *command],
                stdin=subprocess.DEVNULL, stdout=file,
                stderr=subprocess.STDOUT, start_new_session=True)

    @property
    def pid(self):
        return self.process.pid

    def said(self):
        with open(self.log, encoding="utf-8", errors="replace") as file:
            return file.read()

    def check(self):
        if self.process.poll() is not None:
            tail = "\n".join(self.said().splitlines()[-5:])
            raise BenchError(f"{self.name} does not start; its log ends:\n"
                             f"{tail}")

    def wait_until(self, what, done, seconds=60):
        """Until done() says something, which is returned."""
        deadline = time.monotonic() + seconds
        while True:
            answer = done()
            if answer:
                return answer
            self.check()
            if time.monotonic() > deadline:
                raise BenchError(f"{self.name}: {what} did not come within "
                                 f"{seconds} s")
            time.sleep(0.02)

    def value_of(self, word):
        """What stands behind `word` in what it said when it was ready."""
        def find():
            for line in self.said().splitlines():
                parts = line.split()
                if len(parts) > 1 and parts[0] == word:
                    return parts[1]
            return None
        return self.wait_until(f"its {word}", find)

    def stop(self):
        stop_process(self.process)

    def kill(self):
        stop_process(self.process, signal.SIGKILL)


def resident_bytes(pid, field="VmRSS"):
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        for line in file:
            if line.startswith(field + ":"):
                return int(line.split()[1]) * 1024
    raise BenchError(f"process {pid} has no {field}")


def cpu_seconds(pid):
    """That all its threads have run until now."""
    nanos = 0
    for task in os.listdir(f"/proc/{pid}/task"):
        try:
            with open(f"/proc/{pid}/task/{task}/schedstat",
                      encoding="ascii") as file:
                nanos += int(file.read().split()[0])
        except OSError:
            pass  # It has ended meanwhile.
    return nanos / 1e9
