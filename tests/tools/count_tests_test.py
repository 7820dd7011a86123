"""tools/cmake/count_tests.py counts tests, not programs."""

import os
import subprocess
import sys
import tempfile
import unittest
from xml.sax.saxutils import escape

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))


class CountTestsTest(unittest.TestCase):

    def count(self, *entries):
        """What is counted over entries of (status, output)."""
        cases = "".join(
            f'<testcase name="t" status="{status}">'
            f"<system-out>{escape(output)}</system-out></testcase>"
            for status, output in entries)
        with tempfile.TemporaryDirectory() as folder:
            report = os.path.join(folder, "tests.xml")
            with open(report, "w", encoding="utf-8") as file:
                file.write(f"<testsuite>{cases}</testsuite>")
            return self.run_on(report)

    def run_on(self, report):
        return subprocess.run(
            [sys.executable, "-B", f"{ROOT}/tools/cmake/count_tests.py",
             report], check=True, capture_output=True, text=True).stdout.strip()

    def test_the_tests_of_a_google_test_program_count_one_by_one(self):
        self.assertEqual(self.count(("run", "[  PASSED  ] 12 tests.\n")),
                         "12 0")
        self.assertEqual(
            self.count(("fail", "[  PASSED  ] 3 tests.\n"
                        "[  FAILED  ] 2 tests, listed below:\n")), "3 2")

    def test_a_crash_is_one_failure(self):
        self.assertEqual(self.count(("fail", "[ RUN      ] A.B\n")), "0 1")
        self.assertEqual(
            self.count(("fail", "[  PASSED  ] 3 tests.\nLeakSanitizer\n")),
            "3 1")

    def test_the_tests_of_a_python_program_count_one_by_one(self):
        self.assertEqual(self.count(("run", "Ran 5 tests in 0.1s\n\nOK\n")),
                         "5 0")
        self.assertEqual(
            self.count(("fail", "Ran 5 tests in 0.1s\n\n"
                        "FAILED (failures=1, errors=2)\n")), "2 3")

    def test_any_other_program_is_one_test(self):
        self.assertEqual(self.count(("run", "fine\n"), ("run", "")), "2 0")

    def test_a_report_that_was_not_written_is_one_failure(self):
        self.assertEqual(self.run_on("/nonexistent/tests.xml"), "0 1")


if __name__ == "__main__":
    unittest.main()
