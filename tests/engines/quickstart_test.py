"""The quick starts' commands as they stand in docs/: the blocks that are marked
as bash, each document's in one shell. What is not marked is installing, which
tests/engines/all has done, and what needs a GPU."""

import os
import re
import subprocess
import tempfile
import unittest

import engine

ROOT = os.path.join(engine.HERE, "..", "..")


def commands(name):
    path = os.path.join(ROOT, "docs", f"quickstart-{name}.md")
    with open(path, encoding="utf-8") as document:
        return "\n".join(re.findall(r"^```bash\n(.*?)^```$", document.read(),
                                    re.MULTILINE | re.DOTALL))


class QuickstartTest(unittest.TestCase):
    """All take the same ports, so one after the other."""

    def run_as_written(self, text, name):
        """In a folder with the names that the documents use."""
        with tempfile.TemporaryDirectory() as folder:
            for each in ("tests", "docs"):
                os.symlink(os.path.join(ROOT, each), os.path.join(folder, each))
            os.makedirs(os.path.join(folder, "build", "release"))
            for link, target in (
                    ("release/bin", engine.options.programs),
                    ("release/python", engine.options.package),
                    ("engine", engine.options.vllm),
                    ("sglang", engine.options.sglang)):
                os.symlink(target, os.path.join(folder, "build", link))
            log = os.path.join(engine.options.logs, f"quickstart-{name}.log")
            with open(log, "wb") as out:
                ran = subprocess.Popen(
                    ["bash", "-ec", "set -m\n" + text], cwd=folder,
                    stdin=subprocess.DEVNULL, stdout=out,
                    stderr=subprocess.STDOUT, start_new_session=True,
                    env=engine.environment(TMPDIR=folder,
                                           VLLM_ENABLE_V1_MULTIPROCESSING="1"))
                try:
                    code = ran.wait(timeout=engine.PATIENCE)
                finally:
                    engine.kill_session(ran)
            with open(log, encoding="utf-8", errors="replace") as out:
                said = out.read()
            self.assertEqual(code, 0, said[-4000:])
            return said

    def test_vllm(self):
        said = self.run_as_written(commands("vllm"), "vllm")
        self.assertIn('"cached_tokens":192', said)
        self.assertIn("vllm", self.namespaces(said))

    def test_lmcache(self):
        first = commands("vllm").split("cat >$work/vllm")[0]
        said = self.run_as_written(first + commands("lmcache"), "lmcache")
        self.assertIn('"cached_tokens":192', said)
        self.assertIn("lmcache", self.namespaces(said))

    def test_sglang(self):
        said = self.run_as_written(commands("sglang"), "sglang")
        self.assertIn('"equal_pages": 100', said)
        self.assertIn("sglang", self.namespaces(said))

    def namespaces(self, said):
        """What `firnkv namespace ls` has shown."""
        return said[said.index("NAMESPACE"):]
