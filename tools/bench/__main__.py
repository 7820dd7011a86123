"""Measures FirnKV beside what the machine allows: each figure in turns with its
limit, at least 15 pairs, and the median of the pairs' ratios.

Builds the release build, starts real daemons (with users of their own where
this is root), prints a table. A ratio is ours over the limit's; `spread` is the
distance between the quartiles of the ratios (of the values, where there is no
limit); `met` is `unresolved` where that is wider than the distance from the
target. Measure on an otherwise idle machine: both sides suffer from company,
but not alike.
"""

import argparse
import os
import subprocess
import sys

import record
from bench import Bench
from figures import result, text_table, to_json
from program import BenchError, Skip
from suite_catalog import CATALOG_ROWS
from suite_core import LOCAL_ROWS, PLACEMENT_ROWS
from suite_data import DATA_ROWS
from suite_flash import FLASH_ROWS
from suite_peers import PEER_ROWS, install
from suite_python import PYTHON_ROWS

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
ROWS = (LOCAL_ROWS + CATALOG_ROWS + PLACEMENT_ROWS + DATA_ROWS + FLASH_ROWS
        + PYTHON_ROWS + PEER_ROWS)
SUITES = list(dict.fromkeys(row.suite for row in ROWS))

PAIRS = 15
QUICK_PAIRS = 3


def arguments():
    parser = argparse.ArgumentParser(
        prog="tools/bench/run", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="Exits with 1 where a figure misses its target, 2 where one "
               "could not be taken.")
    parser.add_argument("suites", nargs="*", metavar="SUITE",
                        help=f"of {', '.join(SUITES)}; all of them")
    parser.add_argument("--only", nargs="+", metavar="NAME", default=[],
                        help="these figures of the suites; --list names them")
    parser.add_argument("--list", action="store_true",
                        help="print the figures with their targets, and end")
    parser.add_argument("--pairs", type=int, metavar="N",
                        help=f"pairs of each figure (default {PAIRS})")
    parser.add_argument("--quick", action="store_true",
                        help=f"{QUICK_PAIRS} short pairs and small catalogs: "
                             "shows that it works, and no figure")
    parser.add_argument("--json", metavar="FILE",
                        help="write one object a line for each figure")
    parser.add_argument("--record", action="store_true",
                        help="put the table of each suite that was measured "
                             "whole into docs/BENCHMARKS.md")
    parser.add_argument("--build", metavar="FOLDER",
                        default=os.path.join(ROOT, "build", "release"),
                        help="where to build (build/release)")
    parser.add_argument("--no-build", action="store_true",
                        help="use the programs that are there")
    parser.add_argument("--install-peers", action="store_true",
                        help="install memcached, Redis and Mooncake (root), "
                             "and end")
    return parser


def chosen(parser, options):
    """The rows that were asked for; ends with what there is where one of them
    does not exist."""
    for suite in options.suites:
        if suite not in SUITES:
            parser.error(f"there is no suite {suite}; there are "
                         f"{', '.join(SUITES)}")
    rows = [row for row in ROWS
            if not options.suites or row.suite in options.suites]
    names = [row.name for row in rows]
    for name in options.only:
        if name not in names:
            parser.error(f"there is no figure {name}; there are "
                         f"{', '.join(names)}")
    return [row for row in rows
            if not options.only or row.name in options.only]


def build(folder):
    env = dict(os.environ)
    env.setdefault("CCACHE_BASEDIR", os.path.dirname(ROOT))
    env.setdefault("CCACHE_NOHASHDIR", "1")
    for step in (["cmake", "-S", ROOT, "-B", folder, "-G", "Ninja",
                  "-DCMAKE_C_COMPILER=gcc", "-DCMAKE_CXX_COMPILER=g++"],
                 ["ninja", "-C", folder, "firnkv_bench"]):
        done = subprocess.run(step, env=env, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True,
                              check=False)
        if done.returncode != 0:
            print(done.stdout, file=sys.stderr)
            raise BenchError(f"{' '.join(step)} failed")


def commit():
    def git(*words):
        return subprocess.run(["git", "-C", ROOT, *words], text=True,
                              capture_output=True, check=False).stdout.strip()
    return ((git("rev-parse", "--short", "HEAD") or "unknown")
            + ("+" if git("status", "--porcelain", "-uno") else ""))


def measure(bench, rows, say_result):
    """(results, skipped, failed), the two latter as (row, why)."""
    results, skipped, failed = [], [], []
    now = commit()
    suite = None
    for number, row in enumerate(rows, 1):
        # The suites keep out of each other's way; the peers compare with the
        # clusters of both.
        if suite not in (None, row.suite) and row.suite != "peers":
            bench.stop_all()
        suite = row.suite
        bench.say(f"[{number}/{len(rows)}] {row.suite}: {row.name}")
        try:
            results.append(result(row, bench.take(row), now))
        except Skip as why:
            skipped.append((row, str(why)))
            bench.say(f"  left out: {why}")
            continue
        except BenchError as why:
            failed.append((row, str(why)))
            bench.say(f"  FAILED: {why}")
            continue
        say_result(results[-1])
    return results, skipped, failed


def record_suites(rows, results, skipped):
    path = os.path.join(ROOT, "docs", "BENCHMARKS.md")
    for suite in SUITES:
        mine = [one for one in results if one["suite"] == suite]
        left = [(row.name, why) for row, why in skipped if row.suite == suite]
        if mine and len(mine) + len(left) == sum(row.suite == suite
                                                 for row in ROWS):
            record.record(path, suite, mine, left)
        elif any(row.suite == suite for row in rows):
            print(f"{suite} was not measured whole: not recorded",
                  file=sys.stderr)


def run(options, rows):
    if not options.no_build:
        print(f"building in {options.build}", file=sys.stderr, flush=True)
        build(options.build)
    pairs = options.pairs or (QUICK_PAIRS if options.quick else PAIRS)
    bench = Bench(os.path.join(options.build, "bin"), pairs, options.quick)
    file = open(options.json, "w", encoding="utf-8") if options.json else None

    def say_result(one):
        bench.say(f"  {text_table([one]).splitlines()[1]}")
        if file:
            print(to_json(one), file=file, flush=True)
    try:
        results, skipped, failed = measure(bench, rows, say_result)
    finally:
        bench.close()
        if file:
            file.close()
    print(text_table(results))
    for row, why in skipped + failed:
        print(f"{row.name}: {why}")
    if options.record:
        record_suites(rows, results, skipped)
    if failed:
        return 2
    return 1 if any(one["met"] == "no" for one in results) else 0


def main():
    parser = arguments()
    options = parser.parse_args()
    rows = chosen(parser, options)
    if options.pairs is not None and options.pairs < 1:
        parser.error("--pairs must be 1 or more")
    if options.record and (options.quick or options.only):
        parser.error("--record is for whole suites, measured in full")
    if options.list:
        for row in rows:
            print(f"{row.suite:6} {row.name}: {row.limit or 'absolute'}, "
                  f"target {row.target}")
        return 0
    try:
        if options.install_peers:
            install()
            return 0
        return run(options, rows)
    except (BenchError, OSError, subprocess.CalledProcessError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
