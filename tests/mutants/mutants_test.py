"""Every mutant still applies to the tree; the runner takes for caught only
what is."""

import os
import stat
import tempfile
import unittest

import catcher
import lane
import patches
from tree_copy import TreeCopy

ROOT = os.path.dirname(os.path.dirname(patches.HERE))

GOOD = """# rule: P7
# fault: a slot is reused
#   without a bump
# caught by: sim
# seeds: 20
--- a/server/slot.cc
+++ b/server/slot.cc
@@ -1,3 +1,2 @@
 first
-second
 third
"""


class PatchesTest(unittest.TestCase):

    def test_every_mutant_says_what_it_is_and_applies_to_the_tree(self):
        mutants = patches.all_mutants()

        self.assertGreater(len(mutants), 40)
        self.assertEqual(patches.problems_of(mutants, ROOT), [])

    def test_at_least_ten_are_of_no_rule(self):
        own = [m for m in patches.all_mutants() if m.rule == "own"]

        self.assertGreaterEqual(len(own), 10)


class MutantTest(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = folder.name
        self.write("server/slot.cc", "first\nsecond\nthird\n")

    def write(self, path, text):
        path = os.path.join(self.root, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def read(self, path):
        with open(os.path.join(self.root, path), encoding="utf-8") as file:
            return file.read()

    def mutant(self, text, name="P7_bump.patch"):
        return patches.Mutant(self.write(name, text))

    def test_a_good_one_is_read_put_in_and_taken_out(self):
        mutant = self.mutant(GOOD)

        self.assertEqual(patches.problems_of([mutant], self.root), [])
        self.assertEqual((mutant.rule, mutant.catcher, mutant.seeds),
                         ("P7", "sim", 20))
        self.assertEqual(mutant.fault, "a slot is reused without a bump")
        self.assertEqual(mutant.git_apply(self.root), "")
        self.assertEqual(self.read("server/slot.cc"), "first\nthird\n")
        self.assertEqual(mutant.git_apply(self.root, "--reverse"), "")
        self.assertEqual(self.read("server/slot.cc"),
                         "first\nsecond\nthird\n")

    def test_one_that_no_longer_applies_is_a_problem(self):
        mutant = self.mutant(GOOD)
        self.write("server/slot.cc", "first\nother\nthird\n")

        problems = patches.problems_of([mutant], self.root)

        self.assertEqual(len(problems), 1)
        self.assertIn("does not apply", problems[0])

    def test_what_a_mutant_may_not_be_is_a_problem(self):
        for bad, said in (
                (GOOD.replace("# rule: P7\n", ""), "no line `# rule"),
                (GOOD.replace("rule: P7", "rule: S5"), "begin with S5_"),
                (GOOD.replace("seeds: 20", "seeds: many"), "no number"),
                (GOOD.replace("by: sim", "by: luck"), "say `sim` or"),
                (GOOD.replace("server/", "tests/"), "no product code"),
                (GOOD.replace("-second\n", "-second\n" * 9), "9 lines with")):
            with self.subTest(said):
                problems = "\n".join(self.mutant(bad).problems)

                self.assertIn(said, problems)

    def test_a_test_may_be_the_catcher_with_a_filter(self):
        mutant = self.mutant(GOOD.replace("by: sim", "by: test slot_test A.B"))

        self.assertEqual((mutant.catcher, mutant.target, mutant.filter),
                         ("test", "slot_test", "A.B"))


class CatcherTest(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def program(self, script):
        """A simulation: $seed and $count are what it was asked for."""
        path = os.path.join(self.folder, "program")
        with open(path, "w", encoding="utf-8") as file:
            file.write('#!/bin/bash\nseed=${1#--seed=}\ncount=${2#--count=}\n'
                       'last=$((seed + count - 1))\n' + script)
        os.chmod(path, stat.S_IRWXU)
        return path

    def hunt(self, script, seeds=40):
        hunt = catcher.Hunt(first=1, jobs=2, seconds=0)
        hunt.limit = 5
        return hunt.sim(self.program(script), seeds)

    EACH = 'for ((s = seed; s <= last; ++s)); do echo "seed $s: fine"; '

    def test_the_first_seed_with_a_violation_is_found(self):
        finding = self.hunt(self.EACH + '''
            [ $s -lt 17 ] || echo "  VIOLATION WRONG BYTES: $s"; done
            [ $last -lt 17 ]''')

        self.assertTrue(finding.caught)
        self.assertEqual((finding.seed, finding.how), (17, "WRONG BYTES: 17"))

    def test_a_check_is_found_in_the_seed_that_it_ends(self):
        finding = self.hunt(self.EACH + '''
            if [ $s = 21 ]; then
              echo "/x/pool.cc:7: CHECK failed: a == b" >&2; kill -ABRT $$
            fi; done''')

        self.assertTrue(finding.caught)
        self.assertEqual((finding.seed, finding.how),
                         (22, "pool.cc:7: CHECK failed: a == b"))

    def test_a_crash_that_says_nothing_is_no_catch(self):
        finding = self.hunt("kill -SEGV $$")

        self.assertFalse(finding.caught)
        self.assertIn("dies", finding.how)

    def test_a_hang_is_no_catch(self):
        hunt = catcher.Hunt(first=1, jobs=1, seconds=0)
        hunt.limit = 0.2

        finding = hunt.sim(self.program("exec tail -f /dev/null"), 10)

        self.assertFalse(finding.caught)
        self.assertEqual(finding.how, "hangs")

    def test_a_quiet_run_is_a_survivor(self):
        finding = self.hunt(self.EACH + "done", seeds=35)

        self.assertFalse(finding.caught)
        self.assertEqual(finding.how, "survives 35 seeds")

    def test_no_seed_beyond_the_stated_ones_is_tried(self):
        finding = self.hunt(self.EACH + '''
            [ $s -lt 36 ] || echo "  VIOLATION $s"; done''', seeds=35)

        self.assertFalse(finding.caught)

    def test_a_failed_test_is_found_and_a_crash_is_none(self):
        failing = self.program('echo "[  FAILED  ] A.B (1 ms)"; exit 1')
        found = catcher.test(failing, "*", self.folder)
        self.assertEqual((found.caught, found.how), (True, "FAILED A.B"))

        crashed = catcher.test(self.program("kill -SEGV $$"), "*", self.folder)
        self.assertFalse(crashed.caught)

        self.assertIsNone(catcher.test(self.program("exit 0"), "*",
                                       self.folder))


class Portion:

    def __init__(self, name, catches, target):
        self.name, self.catcher, self.target = name, catches, target


class PortionsTest(unittest.TestCase):

    def test_one_lane_has_all_mutants_of_a_test_and_one_of_the_simulation(self):
        mutants = [Portion("a", "sim", "firnkv_sim"),
                   Portion("b", "test", "slot_test"),
                   Portion("c", "sim", "firnkv_sim"),
                   Portion("d", "test", "pool_test"),
                   Portion("e", "test", "pool_test")]

        portions = [[m.name for m in portion]
                    for portion in lane.portions(mutants)]

        self.assertEqual(portions, [["d", "e"], ["b"], ["a"], ["c"]])

    def test_every_mutant_is_taken_once(self):
        class Still:

            def prepare(self):
                pass

        mutants = [Portion(str(i), "sim", "firnkv_sim") for i in range(20)]
        taken = []

        lane.run_all([Still(), Still()], mutants,
                     lambda _, mutant: taken.append(mutant.name))

        self.assertEqual(sorted(taken), sorted(m.name for m in mutants))


class TreeCopyTest(unittest.TestCase):

    def test_a_refreshed_copy_is_what_the_source_is(self):
        with tempfile.TemporaryDirectory() as folder:
            copy = TreeCopy(ROOT, folder, jobs=1)
            copy.refresh()
            path = os.path.join(folder, "CMakeLists.txt")
            with open(path, encoding="utf-8") as file:
                text = file.read()
            touched = os.stat(path).st_mtime_ns
            with open(os.path.join(folder, "README.md"), "w",
                      encoding="utf-8") as file:
                file.write("dirt")
            stray = os.path.join(folder, "server", "stray.cc")
            with open(stray, "w", encoding="utf-8") as file:
                file.write("dirt")
            built = os.path.join(folder, "build", "kept")
            os.makedirs(os.path.dirname(built))
            with open(built, "w", encoding="utf-8") as file:
                file.write("a build")

            copy.refresh()

            with open(os.path.join(ROOT, "CMakeLists.txt"),
                      encoding="utf-8") as file:
                self.assertEqual(text, file.read())
            with open(os.path.join(ROOT, "README.md"),
                      encoding="utf-8") as file, open(
                          os.path.join(folder, "README.md"),
                          encoding="utf-8") as copied:
                self.assertEqual(copied.read(), file.read())
            self.assertEqual(os.stat(path).st_mtime_ns, touched)
            self.assertFalse(os.path.exists(stray))
            self.assertTrue(os.path.exists(built))


if __name__ == "__main__":
    unittest.main()
