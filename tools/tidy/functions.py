"""Finds the functions of C++ text by its braces, well enough to measure
them."""

import re

_PREPROCESSOR = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.MULTILINE)
_TEMPLATE_HEAD = re.compile(r"\btemplate\s*<[^{};]*?>(?=\s*[\w:\[(])")


def _kind(head):
    """What the brace after `head` opens: namespace, class, function, other."""
    head = _TEMPLATE_HEAD.sub(" ", head).strip()
    if re.search(r"\bnamespace\b", head) or head.startswith("extern"):
        return "namespace"
    if re.search(r"\benum\b", head):
        return "other"
    # An access specifier or label may stand before.
    head = re.sub(r"^(\s*(public|private|protected)\s*:)+", "", head).strip()
    if re.match(r"(\[\[.*?\]\]\s*)?(typedef\s+)?(class|struct|union)\b", head):
        return "class"
    if "(" not in head:
        return "other"
    before = re.split(r"\(", head, maxsplit=1)[0]
    if "=" in before and "operator" not in before:
        return "other"
    return "function"


def functions(code):
    """(name, first line, last line) of each function that has a body. `code`
    is without comments and strings."""
    code = _PREPROCESSOR.sub(lambda m: "\n" * m.group(0).count("\n"), code)
    found = []
    stack = []  # of (kind, head, first line)
    in_function = False
    head_start = 0
    line = 1
    for position, char in enumerate(code):
        if char == "\n":
            line += 1
        elif char == "{":
            head = code[head_start:position]
            first = line - head.lstrip().count("\n")
            stack.append(("other" if in_function else _kind(head), head,
                          first))
            in_function = in_function or stack[-1][0] == "function"
        elif char == "}" and stack:
            kind, head, first = stack.pop()
            if kind == "function":
                found.append((_name(head), first, line))
                in_function = False
        if char in "{};" and not in_function:
            head_start = position + 1
    return found


def _name(head):
    match = re.search(r"([~\w:]+|operator\S+)\s*\(", head)
    name = match.group(1) if match else "?"
    if re.match(r"TEST(_F|_P)?$|TYPED_TEST$", name):
        arguments = re.search(r"\(\s*(\w+)\s*,\s*(\w+)", head)
        if arguments:
            name = f"{arguments.group(1)}.{arguments.group(2)}"
    return name
