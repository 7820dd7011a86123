"""The SDK is a guest in its host's process: what its libraries must not do.

Looks at the compiled libraries themselves, each named on the command line, so
that no path is missed: nothing in them ends the process, takes a signal or has
a destructor of its own run at the process's end.
"""

import re
import subprocess
import sys
import unittest

LIBRARIES = sys.argv[1:]

# Functions that a library of the SDK must not call.
NEVER = re.compile(
    r"abort|exit|_exit|quick_exit|_Exit|raise|kill|fork|system"
    r"|signal|sigaction|_ZSt13set_terminate\w+|set_terminate"
    r"|atexit|at_quick_exit|_ZN6firnkv11CheckFailed\w+")

# What runs at the process's end of an object that includes <iostream>: the
# standard library's own, which is harmless there.
STREAMS_END = "_ZNSt8ios_base4InitD1Ev"


def output_of(*command):
    return subprocess.run(command, capture_output=True, text=True,
                          check=True).stdout


def called(library):
    """Names that the objects of `library` want from elsewhere."""
    return {line.split()[-1] for line in output_of("nm", "-u", library)
            .splitlines() if line.strip().startswith("U ")}


def ends_of_objects(library):
    """Of each object: how often it asks for a function at the process's end,
    and how often that is the standard streams'."""
    name, ends, streams = None, 0, 0
    for line in output_of("objdump", "-r", library).splitlines():
        member = re.match(r"(\S+\.o):\s+file format", line)
        if member:
            if name:
                yield name, ends, streams
            name, ends, streams = member.group(1), 0, 0
        ends += "__cxa_atexit" in line
        streams += STREAMS_END in line
    if name:
        yield name, ends, streams


class LibraryTest(unittest.TestCase):
    def test_there_is_something_to_look_at(self):
        self.assertGreater(len(LIBRARIES), 3)
        for library in LIBRARIES:
            self.assertGreater(len(called(library)), 10, library)
            self.assertTrue(list(ends_of_objects(library)), library)

    def test_nothing_ends_the_process_or_takes_its_signals(self):
        for library in LIBRARIES:
            bad = sorted(filter(NEVER.fullmatch, called(library)))
            self.assertEqual(bad, [], library)

    def test_nothing_is_destroyed_at_the_end_of_the_process(self):
        for library in LIBRARIES:
            for name, ends, streams in ends_of_objects(library):
                self.assertEqual(ends, streams, f"{library}: {name}")


if __name__ == "__main__":
    sys.exit(unittest.main(argv=sys.argv[:1]))
