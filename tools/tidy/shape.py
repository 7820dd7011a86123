#!/usr/bin/env python3
"""Checks the shape of the code: sizes, names, bans, dead files.

docs/STYLE.md gives the rules. A file that may be longer than its kind stands
in tools/tidy/allow.txt with its own limit and the reason.
"""

import os
import re
import sys

from functions import functions
from tree import line_of, tree_from_command_line, without_comments

COLUMNS = 80
FUNCTION_LINES = 70
ALLOW = "tools/tidy/allow.txt"
# Kind of file: its limit, and the most that allow.txt can give it.
LIMITS = {"header": (300, 400), "source": (500, 800), "test": (600, 1000)}

BANNED_WORDS = {"manager", "handler", "helper", "helpers", "util", "utils"}
BANNED_LAST_WORDS = {"info", "item", "object", "data"}

SEAMS = r"server/base/thread\w*\.(h|cc)|client/transport/.*|tests/.*|tools/.*"
NOWHERE = r"(?!)"
REAL_TIME = r"tests/process/.*|tools/bench/.*"

# What is banned, the paths that may all the same, what to do instead.
BANS = [
    (r"\bstd::(\w*mutex|lock_guard|unique_lock|scoped_lock|shared_lock"
     r"|condition_variable\w*)\b|\babsl::(Mutex\w*|CondVar)\b",
     r"proto/base/mutex\.h", "use Mutex, MutexLock and CondVar of "
     "proto/base/mutex.h"),
    (r"\bstd::j?thread\b|\bpthread_create\b|\bstd::async\b", SEAMS,
     "threads live behind seams: post a task to an Executor"),
    (r"\b(sleep_for|sleep_until|usleep|nanosleep|SleepFor)\b|(?<!\w)sleep\(",
     r"tests/process/.*", "wait for an event, or set a timer on an Executor"),
    (r"\.detach\(\)", NOWHERE, "join the thread in its owner's Drain()"),
    (r"\b(steady|system|high_resolution)_clock\b|\bclock_gettime\b"
     r"|\bgettimeofday\b|\babsl::Now\(|(?<![\w.:>])time\((nullptr|NULL|0)\)",
     r"proto/base/clock\.cc|" + REAL_TIME,
     "take a Clock of proto/base/clock.h"),
    (r"\bgetenv\b", r"server/base/config\.cc|tools/firnkv/.*|tests/.*",
     "read the environment in server/base/config.cc"),
    (r"\bthrow\b", NOWHERE, "return an absl::Status, or CHECK"),
    (r"\bFRIEND_TEST\b|\bfriend\s+class\s+\w*Test\b|ForTest(ing|s)?\b"
     r"|#\s*define\s+private\b|-fno-access-control", NOWHERE,
     "test through the public interface"),
    (r"\bstd::(mt19937\w*|random_device|default_random_engine)\b"
     r"|(?<![\w:.])s?rand\(", r"proto/base/random\.\w+|tools/bench/.*",
     "take a Random of proto/base/random.h, so that a seed replays it"),
]


def words_of(name):
    return [w.lower() for w in re.findall(r"[A-Z]+(?![a-z])|[A-Z][a-z0-9]*",
                                          name)]


def banned_word(words):
    for word in words:
        if word in BANNED_WORDS:
            return word
    if words and words[-1] in BANNED_LAST_WORDS:
        return words[-1]
    return None


def check_names(tree, path, code):
    stem = os.path.basename(path).rsplit(".", 1)[0]
    if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", stem):
        tree.report(path, 1, "file name is no snake_case", "rename it")
    word = banned_word(stem.split("_"))
    if word:
        tree.report(path, 1, f"file name says '{word}'",
                    "name it after what its class is")
    definition = r"\b(?:class|struct|union)\s+(?:\w+\([^)]*\)\s+|[A-Z]+_\w+" \
                 r"\s+|\[\[\w+\]\]\s+)*([A-Z]\w*)(?:\s+final)?\s*[:{]"
    for match in re.finditer(definition, code):
        word = banned_word(words_of(match.group(1)))
        if word:
            tree.report(path, line_of(code, match.start(1)),
                        f"class {match.group(1)} is named '{word}'",
                        "name it after what it is or does")


def check_bans(tree, path, code):
    for pattern, allowed, advice in BANS:
        if re.fullmatch(allowed, path):
            continue
        for match in re.finditer(pattern, code):
            tree.report(path, line_of(code, match.start()),
                        f"'{match.group(0)}' is banned here", advice)


def check_todo(tree, path, text):
    for match in re.finditer(r"\b(TODO|FIXME|XXX)\b(\(#\d+\))?", text):
        if match.group(1) != "TODO" or not match.group(2):
            tree.report(path, line_of(text, match.start()),
                        f"{match.group(1)} without an issue",
                        "write TODO(#issue): what, or do it")


def block_end(code, opening):
    depth = 0
    for position in range(opening, len(code)):
        if code[position] == "{":
            depth += 1
        elif code[position] == "}":
            depth -= 1
            if depth == 0:
                return position
    return len(code)


def check_switches(tree, path, code):
    """No default in a switch over an outcome: the compiler then names the
    value that was forgotten."""
    for match in re.finditer(r"\bswitch\s*\(([^{}]*)\)\s*\{", code):
        opening = match.end() - 1
        body = code[opening:block_end(code, opening)]
        default = re.search(r"\bdefault\s*:", body)
        if not default:
            continue
        nested = re.search(r"\bswitch\b", body[:default.start()])
        if nested:
            continue
        if (re.search(r"outcome", match.group(1), re.IGNORECASE)
                or re.search(r"\bcase\s+(\w+::)*\w*Outcome::", body)):
            tree.report(path, line_of(code, opening + default.start()),
                        "default in a switch over an outcome",
                        "list every value")


def check_columns(tree, path, text):
    for number, line in enumerate(text.split("\n"), 1):
        if (len(line) > COLUMNS and not line.startswith(("#include", "import"))
                and "://" not in line):
            tree.report(path, number, f"{len(line)} columns",
                        f"break the line at {COLUMNS}")


def check_shared_ptr(tree, path, text):
    """Why several own it stands at most three lines above."""
    lines = text.split("\n")
    uses = r"\bshared_ptr<" if path.endswith(".h") else r"\bmake_shared\b"
    for number, line in enumerate(lines):
        if re.search(uses, line.split("//")[0]) and not any(
                "//" in near for near in lines[max(0, number - 3):number + 1]):
            tree.report(path, number + 1, "shared_ptr without its reason",
                        "say beside it who owns it, or use unique_ptr")


def kind_of(path):
    if path.startswith("tests/"):
        return "test"
    return "header" if path.endswith(".h") else "source"


def read_allowances(tree):
    """Path to limit, from lines `path limit reason`."""
    allowed = {}
    if ALLOW not in tree.paths:
        return allowed
    for number, line in enumerate(tree.read(ALLOW).split("\n"), 1):
        if not line.strip() or line.startswith("#"):
            continue
        parts = line.split(None, 2)
        if len(parts) < 3 or not parts[1].isdigit() or len(
                parts[2].split()) < 3:
            tree.report(ALLOW, number, "no line `path limit reason`",
                        "give all three, the reason as a sentence")
            continue
        path, limit = parts[0], int(parts[1])
        if path not in tree.paths:
            tree.report(ALLOW, number, f"{path} does not exist",
                        "take the line out")
            continue
        if limit > LIMITS[kind_of(path)][1]:
            tree.report(ALLOW, number, f"{limit} lines is too much",
                        f"at most {LIMITS[kind_of(path)][1]}: split the file")
        if tree.read(path).count("\n") <= LIMITS[kind_of(path)][0]:
            tree.report(ALLOW, number, f"{path} needs no allowance",
                        "take the line out")
        allowed[path] = limit
    return allowed


def check_sizes(tree, path, text, code, allowed):
    limit = allowed.get(path, LIMITS[kind_of(path)][0])
    lines = text.count("\n")
    if lines > limit:
        tree.report(path, lines, f"{lines} lines, of {limit}",
                    "find the second thing in it and move that out, or say "
                    f"in {ALLOW} why it is one thing")
    for name, first, last in functions(code):
        if last - first + 1 > FUNCTION_LINES:
            tree.report(path, first, f"{name} has {last - first + 1} lines, "
                        f"of {FUNCTION_LINES}", "split it by its steps")


def check_dead_files(tree):
    """Every source and header is listed by some CMakeLists.txt."""
    listed = set()
    for path in tree.paths:
        if not path.endswith(("CMakeLists.txt", ".cmake")):
            continue
        text = re.sub(r"#[^\n]*", "", tree.read(path))
        for token in re.findall(r"[\w./${}-]+\.(?:h|cc|proto)\b", text):
            base = os.path.dirname(path)
            if token.startswith("${PROJECT_SOURCE_DIR}/"):
                base, token = "", token.split("/", 1)[1]
            listed.add(os.path.normpath(os.path.join(base, token)))
    for path in tree.sources(".h", ".cc", ".proto"):
        if path not in listed:
            tree.report(path, 1, "no CMakeLists.txt lists it",
                        "add it to its folder's, or delete it")


def main():
    tree, _ = tree_from_command_line(__doc__)
    allowed = read_allowances(tree)
    shared = 0
    for path in tree.sources(".h", ".cc"):
        text = tree.read(path)
        code = without_comments(text)
        check_names(tree, path, code)
        check_bans(tree, path, code)
        check_todo(tree, path, text)
        check_switches(tree, path, code)
        check_columns(tree, path, text)
        check_sizes(tree, path, text, code, allowed)
        if not path.startswith("tests/"):
            check_shared_ptr(tree, path, text)
            shared += len(re.findall(r"\bshared_ptr<", code))
    for path in tree.sources(".proto"):
        check_todo(tree, path, tree.read(path))
        check_columns(tree, path, tree.read(path))
    check_dead_files(tree)
    print(f"shape: {shared} uses of shared_ptr outside tests",
          file=sys.stderr)
    return tree.finish()


if __name__ == "__main__":
    sys.exit(main())
