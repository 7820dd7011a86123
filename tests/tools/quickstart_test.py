"""The command line and the quick start against real daemons.

Runs the quick start as it is cloned; starts its cluster with a small generated
trace, and then does with the CLI what an operator does: status, tenants,
namespaces, files, keys, backup, clear. Needs the programs in FIRNKV_BIN.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
BUILD = os.path.dirname(os.environ["FIRNKV_BIN"])
QUICKSTART = os.path.join(ROOT, "tools", "quickstart")


def run(*command, env=None, code=0):
    """Standard output of a command that must end with `code`."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=120,
                          env=env, check=False)
    if done.returncode != code:
        raise AssertionError(f"{command} ended with {done.returncode}:\n"
                             f"{done.stdout}\n{done.stderr}")
    return done.stdout


def command_lines():
    """Of all processes."""
    for process in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{process}/cmdline", encoding="utf-8",
                      errors="replace") as file:
                yield file.read().replace("\0", " ")
        except OSError:
            pass  # It has ended meanwhile.


class QuickstartTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        # Where the workers' user may go too.
        cls.scratch = tempfile.TemporaryDirectory(dir="/tmp")
        os.chmod(cls.scratch.name, 0o777)
        trace = os.path.join(cls.scratch.name, "trace.jsonl")
        # About a quarter more blocks than the three nodes hold.
        run(os.path.join(BUILD, "bin", "firnkv"), "trace", "generate", trace,
            "--conversations", "500", "--duration", "2m")
        report = os.path.join(cls.scratch.name, "report.json")
        out = run(QUICKSTART, "--no-build", "--build", BUILD, "--keep",
                  "--report", report, trace)
        cls.text = out
        with open(report, encoding="utf-8") as file:
            cls.report = json.load(file)
        cls.stop = re.search(r"--stop (\S+)", out).group(1)
        cls.env = dict(os.environ)
        cls.env.update(re.findall(r"export (FIRNKV_CLI_\w+)=(\S+)", out))
        prefix = re.search(r"(setpriv [^\\]*)\\", out)
        cls.prefix = prefix.group(1).split() if prefix else []
        cls.program = os.path.join(cls.stop, "bin", "firnkv")

    @classmethod
    def tearDownClass(cls):
        run(QUICKSTART, "--stop", cls.stop)
        cls.scratch.cleanup()
        left = [line for line in command_lines() if cls.stop in line]
        if left:
            raise AssertionError(f"processes are left: {left}")

    def firnkv(self, *arguments, code=0):
        return run(*self.prefix, self.program, *arguments, env=self.env,
                   code=code)

    def json(self, *arguments, code=0):
        return json.loads(self.firnkv("--json", *arguments, code=code))

    def path(self, name):
        return os.path.join(self.scratch.name, name)

    def put(self, size):
        path = self.path(f"file{size}")
        content = os.urandom(size)
        with open(path, "wb") as file:
            file.write(content)
        os.chmod(path, 0o644)
        answer = self.json("put", "--wait", "published", path)
        return content, answer["files"][0]["name"]

    def test_the_replay_had_no_wrong_byte(self):
        self.assertIn("wrong bytes: 0", self.text)
        self.assertEqual(self.report["wrong_bytes"], 0)
        self.assertEqual(self.report["failed_calls"], 0)
        self.assertEqual(self.report["requests"],
                         self.report["trace_requests"])

    def test_the_replay_read_from_other_nodes(self):
        self.assertGreater(self.report["bytes_mapped"], 0)
        self.assertGreater(self.report["bytes_remote"], 0)

    def test_the_replay_had_evictions(self):
        self.assertGreater(self.report["evictions"], 0)

    def test_the_replay_is_near_the_computed_lru(self):
        self.assertAlmostEqual(self.report["hit_rates"]["blocks"],
                               self.report["lru_hit_rates"]["blocks"],
                               delta=1)

    def test_all_is_well(self):
        answer = self.json("status", "--nodes", "3")
        self.assertEqual(answer["degraded"], [])
        self.assertEqual(len(answer["nodes"]), 3)
        self.assertEqual(answer["local_node"]["tenant"], "default")

    def test_nodes_are_listed(self):
        nodes = self.json("node", "ls")["nodes"]
        self.assertEqual({node["state"] for node in nodes}, {"alive"})

    def test_a_file_comes_back_from_another_node(self):
        for size in (0, 1, 1 << 20, (3 << 20) + 12345):
            content, name = self.put(size)
            other = self.stop + "/node2/node.sock"
            back = self.path(f"back{size}")
            self.firnkv("--socket", other, "get", name, back)
            with open(back, "rb") as file:
                self.assertEqual(hashlib.sha256(file.read()).digest(),
                                 hashlib.sha256(content).digest())

    def test_a_file_that_nobody_put_is_a_miss(self):
        self.put(10)
        self.firnkv("get", "0" * 64, self.path("never"), code=3)
        self.assertFalse(os.path.exists(self.path("never")))

    def test_a_key_is_explained(self):
        answer = self.json("key", "explain", "replay", "--trace-id", "0")
        self.assertTrue(answer["hit"])
        self.assertEqual(answer["copies"][0]["bytes"], 65536)
        self.firnkv("key", "explain", "replay", "--trace-id", "987654321",
                    code=3)

    def test_a_tenant_is_made_once(self):
        self.json("tenant", "create", "red")
        self.firnkv("tenant", "create", "red", code=1)
        names = {row["name"] for row in self.json("tenant", "ls")["tenants"]}
        self.assertEqual(names, {"default", "red"})

    def test_a_namespace_needs_its_whole_contract(self):
        self.firnkv("namespace", "create", "half", "--model", "m", code=1)

    def test_a_clear_makes_every_block_a_miss(self):
        path = self.path("cleared")
        with open(path, "wb") as file:
            file.write(os.urandom(1000))
        os.chmod(path, 0o644)
        name = self.json("put", "--namespace", "temporary",
                         path)["files"][0]["name"]
        self.firnkv("namespace", "clear", "temporary", code=2)
        answer = self.json("namespace", "clear", "temporary", "--yes",
                           "--wait")
        self.assertEqual(answer["pending_nodes"], [])
        self.firnkv("get", "--namespace", "temporary", name,
                    self.path("gone"), code=3)

    def test_a_backup_is_only_its_owners(self):
        backup = self.path("backup")
        self.firnkv("catalog", "backup", backup)
        self.assertEqual(os.stat(backup).st_mode & 0o777, 0o600)
        self.firnkv("catalog", "backup", backup, code=1)
        # Into a catalog that has namespaces it does not go.
        self.firnkv("catalog", "restore", backup, code=1)

    def test_a_tenants_own_token_administers_nothing_else(self):
        env = dict(self.env)
        del env["FIRNKV_CLI_SECRET_FILE"]
        # No data directory of a daemon of this user to find a secret in.
        env["HOME"] = "/nonexistent"
        env.pop("XDG_DATA_HOME", None)
        if os.path.exists("/var/lib/firnkv/cluster.secret"):
            self.skipTest("this machine has a cluster of its own")
        command = [*self.prefix, self.program]
        run(*command, "namespace", "ls", env=env)
        run(*command, "tenant", "create", "blue", env=env, code=1)
        run(*command, "catalog", "backup", self.path("no"), env=env, code=1)


class NoTraceTest(unittest.TestCase):
    """As cloned alone, without traces beside it: one is generated."""

    def test_a_generated_trace_shows_evictions_and_remote_reads(self):
        with tempfile.TemporaryDirectory(dir="/tmp") as scratch:
            alone = os.path.join(scratch, "clone", "tools", "quickstart")
            os.makedirs(os.path.dirname(alone))
            shutil.copy(QUICKSTART, alone)
            path = os.path.join(scratch, "report.json")
            text = run(alone, "--no-build", "--build", BUILD, "--report", path)
            with open(path, encoding="utf-8") as file:
                report = json.load(file)
        self.assertIn("one is generated", text)
        self.assertIn("wrong bytes: 0", text)
        self.assertGreater(report["evictions"], 0)
        self.assertGreater(report["bytes_remote"], 0)
        self.assertAlmostEqual(report["hit_rates"]["blocks"],
                               report["lru_hit_rates"]["blocks"], delta=1)


if __name__ == "__main__":
    sys.exit(unittest.main())
