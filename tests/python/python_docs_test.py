"""The code of docs/PYTHON.md runs, from top to bottom."""

import contextlib
import io
import os
import re
import unittest

from real_node import RealNode

PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..",
                    "docs", "PYTHON.md")


class DocsTest(unittest.TestCase):
    def test_all_code_of_the_page_runs(self):
        with open(PAGE, encoding="utf-8") as file:
            blocks = re.findall(r"^```python\n(.*?)^```", file.read(),
                                re.MULTILINE | re.DOTALL)
        self.assertGreater(len(blocks), 10)
        node = RealNode().start()
        self.addCleanup(node.remove)
        names = {"socket_path": node.socket}
        printed = io.StringIO()
        for block in blocks:
            with self.subTest(block), contextlib.redirect_stdout(printed):
                exec(compile(block, "docs/PYTHON.md", "exec"), names)
        # What the page says that it finds.
        self.assertIn("default", printed.getvalue())
        self.assertEqual(names["resume_prefill_at"], 9)
        self.assertEqual(names["views"].hits, 4)


if __name__ == "__main__":
    unittest.main()
