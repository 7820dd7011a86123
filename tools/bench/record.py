"""docs/BENCHMARKS.md: the last table of each suite, between its markers."""

import datetime
import os
import platform
import re

from figures import markdown_table


def markers(suite):
    return f"<!-- bench {suite}: begin -->", f"<!-- bench {suite}: end -->"


def machine():
    """In one line."""
    with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
        model = re.search(r"model name\s*: (.*)", file.read())
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return (f"{os.cpu_count()} × {model.group(1) if model else 'CPU'}, "
            f"{pages / 2 ** 30:.0f} GiB, Linux {platform.release()}")


def section(suite, results, skipped):
    begin, end = markers(suite)
    day = datetime.date.today().isoformat()
    lines = [begin, "",
             f"`tools/bench/run {suite}`: {day}, {results[0]['commit']}; "
             f"{machine()}.", "", markdown_table(results), ""]
    for name, why in skipped:
        lines.append(f"Left out: {name}: {why}.")
    if skipped:
        lines.append("")
    return "\n".join(lines + [end])


def put_section(text, suite, new):
    """`text` with the suite's section replaced; ValueError where it has none.
    """
    begin, end = markers(suite)
    first, last = text.find(begin), text.find(end)
    if first < 0 or last < first:
        raise ValueError(f"there is no '{begin}' ... '{end}'")
    return text[:first] + new + text[last + len(end):]


def record(path, suite, results, skipped):
    with open(path, encoding="utf-8") as file:
        text = file.read()
    text = put_section(text, suite, section(suite, results, skipped))
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
