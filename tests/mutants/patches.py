"""Mutants: small faults, kept as patches beside this file. What one says of
itself, whether it still applies, how it is put into a copy and taken out.

A patch begins with comment lines:

    # rule: P7                        a rule of docs/CORRECTNESS.md, or `own`
    # fault: what is wrong now, and what should come of it
    # caught by: sim                  or: test TARGET [GTEST_FILTER]
    # seeds: 200                      for sim: within how many
"""

import os
import re
import subprocess

HERE = os.path.dirname(os.path.abspath(__file__))
# Only the product is mutated, never what judges it.
MUTATED = ("proto/", "client/", "server/")
# A patch of more lines taken out or put in is no small fault.
LINES = 8


class Mutant:
    """One patch. Attributes: name, path, rule, fault, catcher ("sim" or
    "test"), target, filter, seeds, and problems: what is wrong with it."""

    def __init__(self, path):
        self.path = path
        self.name = os.path.basename(path).removesuffix(".patch")
        with open(path, encoding="utf-8") as file:
            self.text = file.read()
        self.problems = []
        self.rule = self._field("rule")
        self.fault = self._field("fault")
        self.files = re.findall(r"^\+\+\+ b/(\S+)$", self.text, re.MULTILINE)
        self._read_catcher(self._field("caught by"))
        self._look()

    def _field(self, name):
        found = re.search(rf"^# {name}: (.+(?:\n#   .+)*)$", self.text,
                          re.MULTILINE)
        if not found:
            self.problems.append(f"no line `# {name}: ...`")
            return ""
        return re.sub(r"\n#\s+", " ", found.group(1)).strip()

    def _read_catcher(self, said):
        self.catcher, self.target, self.filter, self.seeds = said, "", "*", 0
        words = said.split()
        if words == ["sim"]:
            self.target = "firnkv_sim"
            seeds = self._field("seeds")
            if seeds.isdigit():
                self.seeds = int(seeds)
            else:
                self.problems.append(f"seeds is '{seeds}', no number")
        elif words[:1] == ["test"] and len(words) in (2, 3):
            self.catcher, self.target = words[0], words[1]
            if len(words) == 3:
                self.filter = words[2]
        elif said:
            self.problems.append(f"caught by '{said}': say `sim` or "
                                 "`test TARGET [FILTER]`")

    def _look(self):
        if not re.fullmatch(r"own|[A-Z]\d+", self.rule):
            self.problems.append(f"rule is '{self.rule}'")
        elif not self.name.startswith(self.rule + "_"):
            self.problems.append(f"its name does not begin with {self.rule}_")
        for path in self.files:
            if not path.startswith(MUTATED):
                self.problems.append(f"{path} is no product code")
        if not self.files:
            self.problems.append("it changes no file")
        for sign in "-+":
            count = len(re.findall(rf"^{re.escape(sign)}(?!{re.escape(sign)})",
                                   self.text, re.MULTILINE))
            if count > LINES:
                self.problems.append(f"{count} lines with {sign}, of {LINES}")

    def git_apply(self, root, *options):
        """What git says against applying it to the tree at root; "" if
        nothing."""
        # Below `root` the tree is plain files, whoever owns the repository
        # around it.
        environment = dict(os.environ,
                           GIT_CEILING_DIRECTORIES=os.path.dirname(root))
        run = subprocess.run(
            ["git", "-c", "safe.directory=*", "apply", "-p1", *options,
             self.path],
            cwd=root, env=environment, check=False, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return "" if run.returncode == 0 else run.stdout.strip() or "git failed"


def all_mutants(folder=HERE):
    """Every patch of the folder, in the order of their names."""
    return [Mutant(os.path.join(folder, name))
            for name in sorted(os.listdir(folder)) if name.endswith(".patch")]


def problems_of(mutants, root):
    """Lines `name: what is wrong`, for people."""
    found = []
    for mutant in mutants:
        found += [f"{mutant.name}: {what}" for what in mutant.problems]
        refusal = mutant.git_apply(root, "--check")
        if refusal:
            found.append(f"{mutant.name}: does not apply any more; make it "
                         f"anew for the code as it is: {refusal}")
    return found
