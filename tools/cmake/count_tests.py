"""Counts tests over ctest's JUnit reports: passed, then failed.

    count_tests.py REPORT.xml...

A ctest entry is one GoogleTest or Python unittest program with many tests in
it, so its output is asked first; an entry without their closing lines counts
as one test. A program that failed without naming a failed test (it crashed,
timed out, or a sanitizer ended it) counts as one failure, and so does a report
that ctest did not come to write.
"""

import os
import re
import sys
import xml.etree.ElementTree as ElementTree

PASSED = re.compile(r"^\[  PASSED  \] (\d+) tests?\.", re.MULTILINE)
FAILED = re.compile(r"^\[  FAILED  \] (\d+) tests?, listed below", re.MULTILINE)
PYTHON_RAN = re.compile(r"^Ran (\d+) tests? in ", re.MULTILINE)
PYTHON_FAILED = re.compile(r"(?:failures|errors)=(\d+)")


def count_entry(entry):
    """Passed and failed tests of one ctest entry."""
    output = entry.findtext("system-out") or ""
    passed = sum(int(n) for n in PASSED.findall(output))
    failed = sum(int(n) for n in FAILED.findall(output))
    ran = PYTHON_RAN.search(output)
    if ran:
        failed += sum(map(int, PYTHON_FAILED.findall(output, ran.end())))
        passed += int(ran.group(1)) - failed
    if entry.get("status") == "run":
        return (passed or 1, 0) if failed == 0 else (passed, failed)
    return passed, failed or 1


def main():
    passed = failed = 0
    for report in sys.argv[1:]:
        if not os.path.exists(report):
            failed += 1
            continue
        for entry in ElementTree.parse(report).getroot().iter("testcase"):
            entry_passed, entry_failed = count_entry(entry)
            passed += entry_passed
            failed += entry_failed
    print(passed, failed)


if __name__ == "__main__":
    main()
