#!/usr/bin/env python3
"""Checks the documents: the paths they name exist, and what is generated is
current.

A path is a word in backticks that begins with one of the tree's folders, as in
`proto/base/mutex.h`; `*` and `{a,b}` match, words with < > or $ are left out.

tools/tidy/generated.txt says which program prints which document. They are
compared if the programs of the release build are newer than every source;
with --generated always, which is what tools/test does after that build. With
--write the documents are written instead.
"""

import glob
import itertools
import os
import re
import subprocess
import sys

from tree import line_of, tree_from_command_line

FOLDERS = ("proto", "client", "server", "deploy", "config", "tests", "tools",
           "docs", "docker", ".ci")
GENERATED = "tools/tidy/generated.txt"
PROGRAMS = "build/release/bin"
PATH = re.compile(r"(?:%s)/[\w./*{},-]*" % "|".join(map(re.escape, FOLDERS)))


def expand(path):
    """`a/{b,c}.h` as its alternatives."""
    parts = re.split(r"\{([^}]*)\}", path)
    choices = [part.split(",") if i % 2 else [part]
               for i, part in enumerate(parts)]
    return ["".join(choice) for choice in itertools.product(*choices)]


def check_paths(tree, document):
    text = tree.read(document)
    # Fenced blocks are commands and pictures.
    text = re.sub(r"^```.*?^```", lambda m: "\n" * m.group(0).count("\n"),
                  text, flags=re.DOTALL | re.MULTILINE)
    for code in re.finditer(r"`([^`\n]+)`", text):
        for word in code.group(1).split():
            if re.search(r"[<>$…]|NNNN", word):
                continue
            match = PATH.fullmatch(word.rstrip(".,;:").split(":")[0])
            if not match:
                continue
            for path in expand(match.group(0)):
                if not glob.glob(tree.absolute(path)):
                    tree.report(document, line_of(text, code.start()),
                                f"`{path}` does not exist",
                                "name what does, or take it out")


def generated_documents(tree):
    """(path, program, arguments) of each line of generated.txt."""
    if GENERATED not in tree.paths:
        return
    for line in tree.read(GENERATED).split("\n"):
        if line.strip() and not line.startswith("#"):
            path, program, *arguments = line.split()
            yield path, tree.absolute(f"{PROGRAMS}/{program}"), arguments


def program_is_current(tree, program):
    if not os.path.exists(program):
        return False
    built = os.path.getmtime(program)
    return all(os.path.getmtime(tree.absolute(path)) <= built
               for path in tree.sources(".h", ".cc", ".proto")
               if not path.startswith("tests/"))


def check_generated(tree, always, write):
    for path, program, arguments in generated_documents(tree):
        if not os.path.exists(program) and (always or write):
            tree.report(GENERATED, 1, f"{program} does not exist",
                        "build the release build first")
            continue
        if not always and not write and not program_is_current(tree, program):
            continue
        printed = subprocess.run([program, *arguments], check=True, text=True,
                                 capture_output=True).stdout
        if write:
            with open(tree.absolute(path), "w", encoding="utf-8") as file:
                file.write(printed)
        elif path not in tree.paths or tree.read(path) != printed:
            tree.report(path, 1, "is not what its program prints",
                        "run tools/tidy/docs.py --write and look at the diff")


def arguments(parser):
    parser.add_argument("--generated", action="store_true",
                        help="compare generated documents in any case")
    parser.add_argument("--write", action="store_true",
                        help="write the generated documents")


def main():
    tree, parsed = tree_from_command_line(__doc__, arguments)
    check_generated(tree, parsed.generated, parsed.write)
    for document in tree.paths:
        if document.endswith(".md"):
            check_paths(tree, document)
    return tree.finish()


if __name__ == "__main__":
    sys.exit(main())
