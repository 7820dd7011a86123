"""What the checkers share: the files of the tree, code without comments,
findings. Run by itself it prints the C++ files, each ended by a zero byte.

A finding is one line, `path:line: what; how to fix`. A checker prints its
findings and exits 1 if there are any.
"""

import argparse
import os
import re
import subprocess
import sys

TOP_FOLDERS = ("proto", "client", "server", "tools", "tests")
_BUILD = "build/"


class Tree:
    """The files below one root, named relative to it with slashes."""

    def __init__(self, root):
        self.root = os.path.abspath(root)
        self.paths = sorted(self._list())
        self.findings = []

    def _list(self):
        if os.path.exists(os.path.join(self.root, ".git")):
            # Also what is not committed yet, but nothing that is ignored;
            # also in a clone that another user made.
            out = subprocess.run(
                ["git", "-c", "safe.directory=*", "-C", self.root, "ls-files",
                 "-z", "--cached", "--others", "--exclude-standard"],
                check=True, capture_output=True, text=True).stdout
            names = set(out.split("\0")) - {""}
            return [n for n in names if os.path.isfile(self.absolute(n))]
        names = []
        for folder, _, files in os.walk(self.root):
            for name in files:
                path = os.path.relpath(os.path.join(folder, name), self.root)
                if not path.startswith(_BUILD):
                    names.append(path.replace(os.sep, "/"))
        return names

    def absolute(self, path):
        return os.path.join(self.root, path)

    def read(self, path):
        with open(self.absolute(path), encoding="utf-8",
                  errors="replace") as file:
            return file.read()

    def sources(self, *suffixes):
        """Paths below the code folders that end in one of the suffixes."""
        return [p for p in self.paths
                if p.split("/")[0] in TOP_FOLDERS and p.endswith(suffixes)]

    def report(self, path, line, what, fix):
        self.findings.append((path, line, f"{what}; {fix}"))

    def finish(self):
        """Prints the findings in order; the process's exit status."""
        for path, line, text in sorted(set(self.findings)):
            print(f"{path}:{line}: {text}")
        return 1 if self.findings else 0


_TOKEN = re.compile(
    r"""//[^\n]*|/\*.*?\*/"""
    r"""|R"([^(\s]*)\(.*?\)\1\""""
    r"""|"(?:\\.|[^"\\\n])*\"|(?<![0-9A-Fa-f])'(?:\\.|[^'\\\n])*'""",
    re.DOTALL)


def without_comments(text, keep_strings=False):
    """C++ text with comments blanked, and strings unless they are kept; lines
    stay where they are."""

    def blank(match):
        token = match.group(0)
        if keep_strings and not token.startswith(("//", "/*")):
            return token
        newlines = "\n" * token.count("\n")
        if token.startswith(("//", "/*")):
            return " " + newlines
        return '""' + newlines

    return _TOKEN.sub(blank, text)


def line_of(text, position):
    return text.count("\n", 0, position) + 1


def tree_from_command_line(description, arguments=None):
    """The tree, and the parsed arguments. `arguments` adds further ones."""
    parser = argparse.ArgumentParser(description=description)
    here = os.path.dirname(os.path.abspath(__file__))
    parser.add_argument("--root", default=os.path.join(here, "..", ".."),
                        help="root of the tree to check")
    if arguments:
        arguments(parser)
    parsed = parser.parse_args(sys.argv[1:])
    return Tree(parsed.root), parsed


if __name__ == "__main__":
    files, _ = tree_from_command_line(__doc__)
    sys.stdout.write("".join(f"{p}\0" for p in files.sources(".h", ".cc")))
