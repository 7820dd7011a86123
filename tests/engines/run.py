"""Real engines against a real cluster of two nodes, on CPU: tools/test --engines.

    run.py --venv FOLDER --programs FOLDER --package FOLDER --model FOLDER

Each engine runs alone, one after the other: what a first one on one node has
computed, a second one on the other node is to find, and both are to say, token
by token, what an engine without any cache says.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
PROMPTS = 50
PREFIXES = 5  # As vllm_engine.py has them.
PREFIX_TOKENS = 288
ENGINE_LIMIT = 900

options = None


def catalog_of(node):
    """The address of the catalog inside a node's process."""
    from real_node import until

    def said():
        lines = (line.split() for line in node.said().splitlines())
        return next((words[1] for words in lines
                     if words[:1] == ["catalog"]), None)
    return until("the catalog's address is said", said)


class VllmTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        from real_node import RealNode
        cls.folder = tempfile.mkdtemp(prefix="firnkv-engines.")
        if not os.path.exists(os.path.join(options.model, "config.json")):
            cls.python("tiny_model.py", options.model)
        cls.first = RealNode().start()
        cls.addClassCleanup(cls.first.remove)
        cls.second = RealNode(
            "--node-catalog", catalog_of(cls.first), "--cluster-secret-file",
            os.path.join(cls.first.folder, "data", "cluster.secret")).start()
        cls.addClassCleanup(cls.second.remove)
        cls.plain = cls.engine("plain", None)

    @classmethod
    def python(cls, program, *arguments):
        environment = {
            **os.environ, "HF_HUB_OFFLINE": "1", "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_NO_USAGE_STATS": "1",
            "PYTHONPATH": os.pathsep.join((options.package, HERE))}
        log = os.path.join(cls.folder, "engine.log")
        with open(log, "ab") as file:
            ended = subprocess.run(
                [os.path.join(options.venv, "bin", "python"), "-B",
                 os.path.join(HERE, program), *arguments],
                env=environment, stdin=subprocess.DEVNULL, stdout=file,
                stderr=subprocess.STDOUT, timeout=ENGINE_LIMIT, check=False)
        if ended.returncode != 0:
            with open(log, encoding="utf-8", errors="replace") as file:
                raise AssertionError("".join(file.readlines()[-60:]))

    @classmethod
    def engine(cls, name, transfer):
        out = os.path.join(cls.folder, f"{name}.json")
        cls.python("vllm_engine.py", json.dumps(
            {"model": options.model, "prompts": PROMPTS, "out": out,
             "kv_transfer_config": transfer}))
        with open(out, encoding="utf-8") as file:
            found = json.load(file)
        firsts = found[:PREFIXES]
        print(f"{name}: {len(found)} prompts, of the first of each prefix "
              f"{[each['cached'] for each in firsts]} of "
              f"{[each['prompt'] for each in firsts]} tokens were cached",
              flush=True)
        return found

    def shares(self, name, transfer):
        """`transfer`: of a node, its kv_transfer_config."""
        one = self.engine(f"{name}, first", transfer(self.first))
        other = self.engine(f"{name}, second", transfer(self.second))
        # Nobody had computed these before; and then somebody had.
        self.assertEqual([each["cached"] for each in one[:PREFIXES]],
                         [0] * PREFIXES)
        self.assertEqual([each["cached"] for each in other[:PREFIXES]],
                         [PREFIX_TOKENS] * PREFIXES)
        for found in (one, other):
            self.assertEqual([each["tokens"] for each in found],
                             [each["tokens"] for each in self.plain])

    def test_connector(self):
        self.shares("connector", lambda node: {
            "kv_connector": "FirnKVConnector",
            "kv_connector_module_path": "firnkv.vllm.connector",
            "kv_role": "kv_both", "kv_load_failure_policy": "recompute",
            "kv_connector_extra_config": {
                "socket_path": node.socket, "lookup_deadline": 10.0,
                "load_deadline": 20.0, "save_deadline": 20.0}})

    def test_secondary_tier(self):
        self.shares("tier", lambda node: {
            "kv_connector": "OffloadingConnector", "kv_role": "kv_both",
            "kv_connector_extra_config": {
                "spec_name": "CpuTieringSpec",
                "spec_module_path": "cpu_tiering",
                "cpu_bytes_to_use": 64 << 20,
                "secondary_tiers": [{
                    "type": "FirnKVTier", "module_path": "firnkv.vllm.tier",
                    "socket_path": node.socket, "lookup_deadline": 10.0,
                    "load_deadline": 20.0, "store_deadline": 20.0}]}})


def main():
    global options
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--venv", required=True)
    parser.add_argument("--programs", required=True)
    parser.add_argument("--package", required=True)
    parser.add_argument("--model", required=True)
    options, rest = parser.parse_known_args()
    for name in ("venv", "programs", "package", "model"):
        setattr(options, name, os.path.abspath(getattr(options, name)))
    os.environ["FIRNKV_BIN"] = options.programs
    sys.path[:0] = [options.package, os.path.join(HERE, "..", "python")]
    result = unittest.main(argv=[sys.argv[0], *rest], exit=False).result
    failed = len(result.failures) + len(result.errors)
    print(f"{max(0, result.testsRun - failed)} passed, {failed} failed")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
