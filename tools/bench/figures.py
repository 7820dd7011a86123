"""What is made of measured pairs: medians, spreads, and whether a target is met.

No clock, no process, no file: the suites hand in numbers.
"""

import json
import math

# The fields of a result, in the order in which they are written.
FIELDS = ("suite", "name", "value", "unit", "limit", "limit_value", "ratio",
          "better", "target", "met", "pairs", "spread", "commit")


def quantile(values, part):
    """Between the two nearest of the sorted values, as the distance says."""
    ordered = sorted(values)
    place = part * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def median(values):
    return quantile(values, 0.5)


def spread(values):
    """Between the quartiles: half of all values lie this close together."""
    return quantile(values, 0.75) - quantile(values, 0.25)


def judge(figure, target, better, width):
    """`yes` or `no`; `unresolved` where the figure's spread is wider than its
    distance from the target; `-` where there is none."""
    if target is None:
        return "-"
    if width > abs(figure - target):
        return "unresolved"
    met = figure >= target if better == "up" else figure <= target
    return "yes" if met else "no"


def result(row, pairs, commit):
    """Of a row and its (ours, limit) pairs; `limit` None throughout where the
    target is an absolute one."""
    ours = [pair[0] for pair in pairs]
    out = {
        "suite": row.suite, "name": row.name, "value": median(ours),
        "unit": row.unit, "limit": row.limit or "-", "limit_value": None,
        "ratio": None, "better": row.better, "target": row.target,
        "pairs": len(pairs), "commit": commit,
    }
    if pairs[0][1] is None:
        figure, width = out["value"], spread(ours)
    else:
        ratios = [mine / limit for mine, limit in pairs]
        out["limit_value"] = median([limit for _, limit in pairs])
        figure = out["ratio"] = median(ratios)
        width = spread(ratios)
    out["spread"] = width
    out["met"] = judge(figure, row.target, row.better, width)
    return {field: out[field] for field in FIELDS}


def to_json(one):
    """One line."""
    return json.dumps(one, ensure_ascii=False)


def short(number):
    """Three digits that count, for a person."""
    if number is None:
        return "-"
    if number == 0:
        return "0"
    digits = max(0, 2 - math.floor(math.log10(abs(number))))
    return f"{number:,.{min(digits, 4)}f}"


def target_text(one):
    if one["target"] is None:
        return "-"
    sign = "≥" if one["better"] == "up" else "≤"
    times = "" if one["ratio"] is None else " ×"
    return f"{sign} {short(one['target'])}{times}"


def cells(one):
    """Of a table's line."""
    limit = "-"
    if one["limit_value"] is not None:
        limit = f"{short(one['limit_value'])} ({one['limit']})"
    return [one["name"], f"{short(one['value'])} {one['unit']}", limit,
            short(one["ratio"]), target_text(one), one["met"],
            short(one["spread"]), str(one["pairs"])]


HEAD = ["figure", "value", "limit", "ratio", "target", "met", "spread",
        "pairs"]


def text_table(results):
    rows = [HEAD] + [cells(one) for one in results]
    widths = [max(len(row[i]) for row in rows) for i in range(len(HEAD))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in
                               zip(row, widths)).rstrip() for row in rows)


def markdown_table(results):
    rows = [HEAD, ["---"] * len(HEAD)] + [cells(one) for one in results]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)
