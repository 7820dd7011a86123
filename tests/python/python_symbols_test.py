"""The native part shows nothing but its entry: what an engine has of protobuf,
gRPC and Abseil does not meet ours.
"""

import subprocess
import sys
import unittest

MODULE = sys.argv[1]


def symbols(*options):
    done = subprocess.run(["nm", "-D", *options, MODULE], check=True,
                          capture_output=True, text=True)
    return [line.split()[-1] for line in done.stdout.splitlines()]


class SymbolsTest(unittest.TestCase):
    def test_there_is_something_to_look_at(self):
        self.assertGreater(len(symbols("--undefined-only")), 100)

    def test_only_the_entry_can_be_seen(self):
        self.assertEqual(symbols("--defined-only"), ["PyInit__core"])


if __name__ == "__main__":
    sys.exit(unittest.main(argv=sys.argv[:1]))
