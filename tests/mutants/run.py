#!/usr/bin/env python3
"""Puts one fault after the other into a copy of the tree, builds it, and lets
the simulation or a test find it, in as many copies at once as there are cores.
tools/soak mutants runs this.

    tests/mutants/run.py                        all, against the work tree
    tests/mutants/run.py --only P7_reuse_without_bump --seed 1000
    tests/mutants/run.py --count 10 --seed 7    ten of them, drawn by the seed
    tests/mutants/run.py --for 20m              as many as that gives
    tests/mutants/run.py --check                only: does each still apply?

A fault is caught by a violated invariant of the simulation, a CHECK, a
sanitizer's report or a failed test, never by a mere crash or hang; and only if
the same seed, or test, finds nothing in the sound build. The copies stay for
the next run, sound. The last line is `mutants: K of M caught`; the exit
status is 0 only if that is all.
"""

import argparse
import fcntl
import os
import random
import re
import sys
import threading
import time

import patches
from lane import Lane, run_all

ROOT = os.path.dirname(os.path.dirname(patches.HERE))
README = os.path.join(patches.HERE, "README.md")
RESULTS = "<!-- results -->\n"
ROW = r"^\| `(\w+)` \| (?:own|[A-Z]\d+) \|.*\n"
SURVIVED = "**not caught**"


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--count", type=int, help="so many of them")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME",
                        help="these; a beginning of a name will do")
    parser.add_argument("--seed", type=int, default=1,
                        help="the simulation's first seed")
    parser.add_argument("--seeds", type=int,
                        help="instead of what each says of itself")
    parser.add_argument("--for", dest="duration", metavar="DURATION",
                        help="begin no more after this: 90s, 20m, 2h")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(),
                        help="copies that are worked in at once")
    parser.add_argument("--revision", help="not the work tree but this commit")
    parser.add_argument("--folder",
                        default=os.path.join(ROOT, "build", "mutants"),
                        help="where the copies are (default: build/mutants)")
    parser.add_argument("--check", action="store_true",
                        help="only whether each still applies")
    parser.add_argument("--record", action="store_true",
                        help="write what came of them into README.md")
    return parser.parse_args()


def seconds_of(duration):
    found = re.fullmatch(r"(\d+)([smh]?)", duration)
    if not found:
        sys.exit(f"run.py: '{duration}' is no duration; say 90s, 20m or 2h")
    return int(found.group(1)) * {"": 1, "s": 1, "m": 60, "h": 3600}[
        found.group(2)]


def chosen(options):
    all_of_them = patches.all_mutants()
    if options.only:
        # A whole name, or all that begin so.
        picked = [m for m in all_of_them
                  if any(m.name.startswith(name) for name in options.only)]
    elif options.count is not None and options.count < len(all_of_them):
        draw = random.Random(options.seed)
        picked = draw.sample(all_of_them, options.count)
        picked.sort(key=lambda m: m.name)
    else:
        picked = all_of_them
    if not picked:
        sys.exit("run.py: no mutant is named so")
    return picked


def seeds_needed(finding, options):
    if finding.seed is None:
        return "–"
    return str(finding.seed - options.seed + 1)


def line_of(mutant, finding, seeds):
    """A row of the table."""
    by = "sim" if mutant.catcher == "sim" else mutant.target
    if mutant.filter != "*":
        by += f" {mutant.filter}"
    how = finding.how.replace("|", "\\|")
    if len(how) > 110:
        how = how[:107] + "..."
    if not finding.caught:
        how = f"{SURVIVED}: {how}"
    return (f"| `{mutant.name}` | {mutant.rule} | {mutant.fault} | "
            f"{by} | {seeds} | {how} |\n")


def record(rows, all_of_them):
    """Writes the table behind its mark in README.md: these rows anew, those of
    earlier runs as they are, as long as there is such a mutant."""
    with open(README, encoding="utf-8") as file:
        head, _, old = file.read().partition(RESULTS)
    lines = {found.group(1): found.group(0)
             for found in re.finditer(ROW, old, re.MULTILINE)}
    lines.update({row[0].name: line_of(*row) for row in rows})
    kept = [lines[m.name] for m in all_of_them if m.name in lines]
    caught = sum(SURVIVED not in line for line in kept)
    missing = [f"`{m.name}`" for m in all_of_them if m.name not in lines]
    with open(README, "w", encoding="utf-8") as file:
        file.write(head + RESULTS + f"\n`mutants: {caught} of {len(kept)} "
                   "caught`, each as of its last recorded run.")
        if missing:
            file.write(" Not yet tried: " + ", ".join(missing) + ".")
        file.write("\n\n| mutant | rule | fault | caught by | seeds needed | "
                   "how |\n|---|---|---|---|---|---|\n" + "".join(kept))


def main():
    options = parse_arguments()
    mutants = chosen(options)
    problems = patches.problems_of(mutants, ROOT) if options.check else [
        f"{m.name}: {what}" for m in mutants for what in m.problems]
    if problems or options.check:
        for line in problems:
            print(line)
        sys.exit(1 if problems else 0)

    os.makedirs(options.folder, exist_ok=True)
    claim = open(options.folder + ".lock", "w", encoding="utf-8")
    fcntl.flock(claim, fcntl.LOCK_EX)
    end = (time.monotonic() + seconds_of(options.duration)
           if options.duration else float("inf"))
    rows = []
    lock = threading.Lock()

    def take(lane, mutant):
        if time.monotonic() >= end:
            return
        began = time.monotonic()
        finding = lane.catch(mutant)
        seeds = seeds_needed(finding, options)
        with lock:
            rows.append((mutant, finding, seeds))
            print(f"{'caught' if finding.caught else 'SURVIVES':8} "
                  f"{mutant.name:42} {mutant.target:24} {seeds:>5} "
                  f"{time.monotonic() - began:6.0f} s  {finding.how}",
                  flush=True)

    lanes = [Lane(ROOT, os.path.join(options.folder, str(i)), options)
             for i in range(min(options.jobs, len(mutants)))]
    run_all(lanes, mutants, take)
    rows.sort(key=lambda row: row[0].name)
    if options.record:
        record(rows, patches.all_mutants())
    caught = sum(finding.caught for _, finding, _ in rows)
    print(f"mutants: {caught} of {len(rows)} caught")
    # A lane that died has said why.
    all_tried = options.duration or len(rows) == len(mutants)
    sys.exit(0 if rows and all_tried and caught == len(rows) else 1)


if __name__ == "__main__":
    main()
