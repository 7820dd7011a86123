"""The driver of the benchmarks: what it makes of measured pairs, what it says
where something does not go, and one figure against real daemons.

No figure is judged here. Needs the programs in FIRNKV_BIN.
"""

import json
import os
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
BENCH = os.path.join(ROOT, "tools", "bench")
BUILD = os.path.dirname(os.environ["FIRNKV_BIN"])
sys.path.insert(0, BENCH)

import figures  # noqa: E402
import record  # noqa: E402
from bench import Bench, Row  # noqa: E402
from cluster import Cluster, Scratch  # noqa: E402
from program import BenchError, Daemon, Program, Skip  # noqa: E402


def row(better="up", target=0.8, limit="a limit", prepare=None):
    return Row("suite", "name", "GiB/s", better, target, limit, prepare)


def run(*words, code=0):
    """The driver with these arguments; it must end with `code`."""
    done = subprocess.run([os.path.join(BENCH, "run"), *words],
                          capture_output=True, text=True, timeout=240,
                          check=False)
    if done.returncode != code:
        raise AssertionError(f"{words} ended with {done.returncode}:\n"
                             f"{done.stdout}\n{done.stderr}")
    return done


class FiguresTest(unittest.TestCase):
    def test_the_median_of_an_even_count_is_between_the_two_middle_ones(self):
        self.assertEqual(figures.median([4, 1, 3, 2]), 2.5)
        self.assertEqual(figures.median([5, 1, 3]), 3)
        self.assertEqual(figures.median([7]), 7)

    def test_the_spread_is_between_the_quartiles(self):
        self.assertEqual(figures.spread([5, 1, 4, 2, 3]), 2)
        self.assertEqual(figures.spread([6, 6, 6]), 0)
        # One outlier moves it little.
        self.assertEqual(figures.spread([5, 1, 4, 2, 1000]), 3)

    def test_a_target_is_met_from_its_own_side(self):
        self.assertEqual(figures.judge(0.9, 0.8, "up", 0.01), "yes")
        self.assertEqual(figures.judge(0.7, 0.8, "up", 0.01), "no")
        self.assertEqual(figures.judge(1.2, 1.5, "down", 0.1), "yes")
        self.assertEqual(figures.judge(1.9, 1.5, "down", 0.1), "no")
        self.assertEqual(figures.judge(0.8, 0.8, "up", 0), "yes")

    def test_what_spreads_wider_than_its_distance_is_unresolved(self):
        self.assertEqual(figures.judge(0.81, 0.8, "up", 0.02), "unresolved")
        self.assertEqual(figures.judge(0.79, 0.8, "up", 0.02), "unresolved")

    def test_a_ratio_is_the_median_of_the_pairs_ratios(self):
        one = figures.result(row(), [(1, 2), (9, 10), (3, 1)], "c0ffee")
        self.assertEqual(one["ratio"], 0.9)
        self.assertEqual(one["value"], 3)
        self.assertEqual(one["limit_value"], 2)

    def test_a_figure_without_a_limit_is_compared_itself(self):
        one = figures.result(row(better="down", target=5, limit=None),
                             [(3.0, None)], "c0ffee")
        self.assertEqual((one["value"], one["ratio"], one["met"]),
                         (3.0, None, "yes"))

    def test_a_result_is_one_line_of_json_with_all_fields(self):
        line = figures.to_json(figures.result(row(), [(8, 10)], "c0ffee"))
        self.assertNotIn("\n", line)
        self.assertEqual(list(json.loads(line)), [
            "suite", "name", "value", "unit", "limit", "limit_value", "ratio",
            "better", "target", "met", "pairs", "spread", "commit"])

    def test_numbers_keep_three_digits(self):
        self.assertEqual([figures.short(x) for x in
                          (0.01234, 1.234, 12.34, 123.4, 12345.6, 0, None)],
                         ["0.0123", "1.23", "12.3", "123", "12,346", "0", "-"])


class RecordTest(unittest.TestCase):
    def test_only_what_stands_between_the_markers_is_replaced(self):
        begin, end = record.markers("core")
        text = f"before\n{begin}\nold\n{end}\nafter\n"
        new = record.put_section(text, "core", f"{begin}\nnew\n{end}")
        self.assertEqual(new, f"before\n{begin}\nnew\n{end}\nafter\n")

    def test_a_document_without_markers_is_left_alone(self):
        with self.assertRaises(ValueError):
            record.put_section("nothing", "core", "new")

    def test_a_section_names_its_commit_and_what_was_left_out(self):
        one = figures.result(row(), [(8, 10)], "c0ffee")
        text = record.section("core", [one], [("other", "no memcached")])
        self.assertIn("c0ffee", text)
        self.assertIn("Left out: other: no memcached.", text)

    def test_the_document_has_a_place_for_every_suite(self):
        with open(os.path.join(ROOT, "docs", "BENCHMARKS.md"),
                  encoding="utf-8") as file:
            text = file.read()
        for suite in ("core", "data", "flash", "python", "peers"):
            record.put_section(text, suite, "")


class BenchTest(unittest.TestCase):
    def setUp(self):
        self.bench = Bench(os.environ["FIRNKV_BIN"], pairs=4, quick=True)
        self.addCleanup(self.bench.close)

    def test_ours_and_the_limit_take_turns_and_each_goes_first_in_turn(self):
        order = []
        sides = (lambda: order.append("ours") or 1.0,
                 lambda: order.append("limit") or 2.0)
        pairs = self.bench.take(row(prepare=lambda _: sides))
        self.assertEqual(pairs, [(1.0, 2.0)] * 4)
        # The first two only warm.
        self.assertEqual(order[2:], ["ours", "limit", "limit", "ours"] * 2)

    def test_a_figure_without_a_limit_is_taken_once(self):
        taken = self.bench.take(row(limit=None,
                                    prepare=lambda _: (lambda: 7.0, None)))
        self.assertEqual(taken, [(7.0, None)])

    def test_a_program_says_what_is_wrong_and_goes_on(self):
        program = Program([self.bench.scratch.program(
            "firnkv_bench_memory_limit")])
        self.addCleanup(program.stop)
        with self.assertRaisesRegex(BenchError, "no command 'nonsense"):
            program.do("nonsense")
        program.do("set", bytes=1 << 20)
        counts = program.do("copy_out", batch=1 << 18, millis=1)
        self.assertEqual(counts["bytes"], counts["ops"] << 18)

    def test_a_program_that_has_ended_is_said_to_have(self):
        program = Program(["/bin/true"])
        self.addCleanup(program.stop)
        program.process.wait()
        with self.assertRaisesRegex(BenchError, "true has ended"):
            program.do("anything")


class ClusterTest(unittest.TestCase):
    def setUp(self):
        self.scratch = Scratch(os.environ["FIRNKV_BIN"])
        self.addCleanup(self.scratch.remove)

    def test_a_daemon_that_does_not_start_is_named_with_its_last_words(self):
        with self.assertRaisesRegex(BenchError,
                                    "firnkv-catalog does not start(.|\n)*"
                                    "no-such-option"):
            Cluster(self.scratch, "broken", nodes=0,
                    catalog=("--no-such-option", "1"))

    def test_a_daemon_that_says_nothing_is_not_waited_for_for_ever(self):
        daemon = Daemon("sleeper", ["sleep", "60"], self.scratch.file("log"))
        self.addCleanup(daemon.stop)
        with self.assertRaisesRegex(BenchError, "did not come within 0.1 s"):
            daemon.wait_until("a word", lambda: None, seconds=0.1)

    def test_nothing_is_left_of_a_cluster(self):
        cluster = Cluster(self.scratch, "small", nodes=1, dram="64MiB")
        pids = [one.pid for one in cluster.running]
        self.assertEqual(len(pids), 2)
        cluster.stop()
        for pid in pids:
            self.assertFalse(os.path.exists(f"/proc/{pid}"))


class DriverTest(unittest.TestCase):
    def test_a_figure_that_does_not_exist_is_refused_with_those_that_do(self):
        done = run("core", "--only", "read_everything", code=2)
        self.assertIn("no figure read_everything", done.stderr)
        self.assertIn("read_mapped_128", done.stderr)

    def test_a_suite_that_does_not_exist_is_refused(self):
        self.assertIn("no suite gpu", run("gpu", code=2).stderr)

    def test_quick_figures_are_not_recorded(self):
        self.assertIn("--record is for whole suites",
                      run("core", "--quick", "--record", code=2).stderr)

    def test_programs_that_are_not_there_are_named(self):
        done = run("core", "--no-build", "--build", "/nonexistent", code=2)
        self.assertIn("/nonexistent", done.stderr)

    def test_a_peer_that_is_not_installed_is_left_out_with_the_reason(self):
        from bench import need_program
        with self.assertRaisesRegex(Skip, "--install-peers"):
            need_program("no-such-peer")

    def test_one_figure_is_taken_printed_and_written(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "out.json")
            done = subprocess.run(
                [os.path.join(BENCH, "run"), "core", "--only",
                 "read_mapped_128", "--quick", "--no-build", "--build", BUILD,
                 "--json", path],
                capture_output=True, text=True, timeout=240, check=False)
            # Met or missed: a test machine decides neither.
            self.assertIn(done.returncode, (0, 1), done.stderr)
            self.assertIn("read_mapped_128", done.stdout)
            with open(path, encoding="utf-8") as file:
                lines = file.read().splitlines()
        self.assertEqual(len(lines), 1)
        one = json.loads(lines[0])
        self.assertEqual((one["suite"], one["name"], one["pairs"]),
                         ("core", "read_mapped_128", 3))
        self.assertGreater(one["value"], 0)


if __name__ == "__main__":
    unittest.main()
