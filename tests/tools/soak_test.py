"""What tools/soak says of its arguments; what it runs is not run here."""

import os
import subprocess
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))


def soak(*words):
    return subprocess.run([os.path.join(ROOT, "tools", "soak"), *words],
                          capture_output=True, text=True, timeout=60,
                          check=False)


class SoakTest(unittest.TestCase):

    def test_help_is_an_answer(self):
        for words in (["--help"], ["-h"], ["sim", "--help"]):
            done = soak(*words)
            self.assertEqual(done.returncode, 0, words)
            self.assertIn("tools/soak KIND", done.stdout)
            self.assertEqual(done.stderr, "")

    def test_what_it_does_not_understand_is_an_error(self):
        for words in ([], ["nonsense"], ["sim", "--count"],
                      ["sim", "--count", "many"], ["sim", "--for", "8"],
                      ["sim", "--count", "1", "--for", "1s"]):
            done = soak(*words)
            self.assertEqual(done.returncode, 2, words)
            self.assertIn("tools/soak KIND", done.stderr)
            self.assertEqual(done.stdout, "")


if __name__ == "__main__":
    unittest.main()
