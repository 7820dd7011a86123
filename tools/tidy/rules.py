#!/usr/bin/env python3
"""docs/CORRECTNESS.md names, for each safety rule, tests and mutants: both are
collected from the sources, so that the page stays true.

    tools/tidy/rules.py           findings: lines that are not what --write writes
    tools/tidy/rules.py --write   rewrites the lines 'Tests:' and 'Mutants:'

A test shows a rule if the comment above it says so ('// Rule P7.', '// Rules
S3, S7: ...'); a mutant is of the rule in its header ('# rule: P7').
"""

import collections
import re
import sys

import tree as trees

PAGE = "docs/CORRECTNESS.md"
# Enough to find the place; the rest name the rule too.
MOST_TESTS = 8
RULE = re.compile(r"\b[PSACTF]\d\d?\b")
TEST = re.compile(r"((?:^//.*\n)+)TEST(?:_F|_P)?\(\s*\w+,\s*(\w+)\)",
                  re.MULTILINE)


def tests_of(tree):
    """Rule: [(test, path)], a line of the page each, in order."""
    found = collections.defaultdict(set)
    for path in tree.sources(".cc"):
        if not path.startswith("tests/"):
            continue
        for match in TEST.finditer(tree.read(path)):
            said = re.findall(r"[Rr]ules?\s+([^.:;]*)",
                              match.group(1).replace("\n//", ""))
            for rule in RULE.findall(" ".join(said)):
                found[rule].add((match.group(2), path))
    return found


def mutants_of(tree):
    found = collections.defaultdict(set)
    for path in tree.paths:
        if path.startswith("tests/mutants/") and path.endswith(".patch"):
            header = re.search(r"^# rule: (.*)$", tree.read(path), re.MULTILINE)
            for rule in RULE.findall(header.group(1) if header else ""):
                found[rule].add(path.split("/")[-1].removesuffix(".patch"))
    return found


def lines_of(rule, tests, mutants):
    named = [f"`{name}` ({path})" for name, path in sorted(tests[rule])]
    more = len(named) - MOST_TESTS
    if more > 0:
        named = named[:MOST_TESTS] + [f"and {more} more"]
    broken = [f"`{name}`" for name in sorted(mutants[rule])]
    return ["Tests: " + ("; ".join(named) or "none") + ".", "",
            "Mutants: " + ("; ".join(broken) or "none") + "."]


def rewritten(page, tests, mutants):
    out, rule = [], None
    lines = iter(page.split("\n"))
    for line in lines:
        heading = re.fullmatch(r"#+ (\w+).*", line)
        if heading:
            rule = heading.group(1) if RULE.fullmatch(heading.group(1)) else None
        if rule and line.startswith("Mutants: "):
            if out and out[-1] == "":
                out.pop()
            continue
        if rule and line.startswith("Tests: "):
            out += lines_of(rule, tests, mutants)
            continue
        out.append(line)
    return "\n".join(out)


def main():
    tree, parsed = trees.tree_from_command_line(
        __doc__, lambda parser: parser.add_argument(
            "--write", action="store_true", help="rewrite the page's lines"))
    if PAGE not in tree.paths:
        return tree.finish()
    page = tree.read(PAGE)
    right = rewritten(page, tests_of(tree), mutants_of(tree))
    if parsed.write:
        with open(tree.absolute(PAGE), "w", encoding="utf-8") as out:
            out.write(right)
    elif page != right:
        lines = zip(page.split("\n"), right.split("\n"))
        where = next((i for i, (a, b) in enumerate(lines, 1) if a != b), 1)
        tree.report(PAGE, where, "is not what tests and mutants say",
                    "run tools/tidy/rules.py --write")
    return tree.finish()


if __name__ == "__main__":
    sys.exit(main())
