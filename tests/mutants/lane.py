"""One copy of the tree, and one mutant after the other in it; several lanes
work side by side, one a core."""

import os
import sys
import threading

import catcher
from tree_copy import BuildFailed, TreeCopy


class Lane:
    """Builds with one job: the cores are for the other lanes."""

    def __init__(self, root, folder, options):
        self.options = options
        self.copy = TreeCopy(root, folder, jobs=1)
        self.sound = os.path.join(folder, "build", "sound")
        self.programs = {}
        self.sound_tests = {}
        self.hunt = None

    def prepare(self):
        self.copy.refresh(self.options.revision)
        self.copy.configure()

    def _sound_program(self, target):
        """That of the copy as it is, built when it is first asked for."""
        if target not in self.programs:
            self.copy.make(target)
            self.programs[target] = self.copy.keep(target, self.sound)
        return self.programs[target]

    def catch(self, mutant):
        """What came of one mutant."""
        try:
            self._sound_program(mutant.target)
        except BuildFailed as why:
            print(why, file=sys.stderr)
            return catcher.Finding(False, "the sound tree does not build")
        refusal = mutant.git_apply(self.copy.folder)
        if refusal:
            return catcher.Finding(False, "does not apply")
        try:
            self.copy.make(mutant.target)
            return self._confirmed(mutant, self._look(mutant))
        except BuildFailed as why:
            print(why, file=sys.stderr)
            return catcher.Finding(False, "does not build")
        finally:
            mutant.git_apply(self.copy.folder, "--reverse")

    def _look(self, mutant):
        program = self.copy.program(mutant.target)
        if mutant.catcher != "sim":
            found = catcher.test(program, mutant.filter, self.copy.folder)
            return found or catcher.Finding(False, f"passes {mutant.target}")
        if self.hunt is None:
            speed = catcher.seconds_a_seed(self.programs[mutant.target])
            self.hunt = catcher.Hunt(self.options.seed, 1, speed)
        return self.hunt.sim(program, self.options.seeds or mutant.seeds)

    def _confirmed(self, mutant, finding):
        """A finding only if the sound build has none."""
        if not finding.caught:
            return finding
        program = self.programs[mutant.target]
        if mutant.catcher == "sim":
            if self.hunt.is_quiet(program, finding.seed):
                return finding
            return catcher.Finding(
                False, f"seed {finding.seed} fails without the fault too")
        key = (mutant.target, mutant.filter)
        if key not in self.sound_tests:
            self.sound_tests[key] = catcher.test(program, mutant.filter,
                                                 self.copy.folder)
        if self.sound_tests[key] is None:
            return finding
        return catcher.Finding(False, "the test fails without the fault too")


def portions(mutants):
    """Lists of mutants that one lane takes at a time: those of one test
    together, so that only one lane builds it; the long ones first."""
    by_target = {}
    sims = []
    for mutant in mutants:
        if mutant.catcher == "sim":
            sims.append([mutant])
        else:
            by_target.setdefault(mutant.target, []).append(mutant)
    return sorted(by_target.values(), key=len, reverse=True) + sims


def run_all(lanes, mutants, take):
    """Every lane takes the next portion until none is left. `take(lane,
    mutant)` runs in the lane's thread."""
    left = portions(mutants)
    lock = threading.Lock()

    def work(lane):
        lane.prepare()
        while True:
            with lock:
                if not left:
                    return
                portion = left.pop(0)
            for mutant in portion:
                take(lane, mutant)

    threads = [threading.Thread(target=work, args=(lane,)) for lane in lanes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
