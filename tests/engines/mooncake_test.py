"""vLLM's own MooncakeStoreConnector with FirnKV's module in place of Mooncake's,
and beside it with the real store: the same outputs, times side by side."""

import json
import os
import tempfile
import unittest

import engine
from cluster import Cluster
from engine import PREFIX_TOKENS, PREFIXES, Engine, Plain, Program, cached
from lmcache_test import free_port

TRANSFER = {"kv_connector": "MooncakeStoreConnector", "kv_role": "kv_both",
            "kv_load_failure_policy": "recompute"}


def configuration(master):
    handle, path = tempfile.mkstemp(dir=engine.options.logs, suffix=".json")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        json.dump({"metadata_server": "P2PHANDSHAKE", "protocol": "tcp",
                   "master_server_address": master, "device_name": "",
                   "mode": "standalone-store", "global_segment_size": 0,
                   "local_buffer_size": 64 << 20}, file)
    return path


class MooncakeTest(unittest.TestCase):
    def shares(self, name, environments, family):
        """Two engines, one after the other alive, both at the end."""
        found = []
        for number, env in enumerate(environments):
            one = Engine(f"{name} {number + 1}", TRANSFER, env=env)
            self.addCleanup(one.end)
            found.append(one.generate(family))
        self.assertEqual(cached(found[0]), [0] * PREFIXES)
        self.assertEqual(cached(found[1]), [PREFIX_TOKENS] * PREFIXES)
        for each in found:
            self.assertEqual(engine.tokens(each), Plain.tokens(family))
        first = [each["seconds"] for each in found[1][:PREFIXES]]
        print(f"MooncakeTest: {name}: the second engine found "
              f"{cached(found[1])}; first prompts of the prefixes took "
              f"{[round(1000 * each) for each in first]} ms, computed by the "
              "first engine "
              f"{[round(1000 * e['seconds']) for e in found[0][:PREFIXES]]} ms",
              flush=True)

    def test_facade(self):
        cluster = Cluster()
        self.addCleanup(cluster.remove)
        path = os.pathsep.join((
            os.path.join(engine.options.package, "firnkv", "compat"),
            engine.environment()["PYTHONPATH"]))
        config = configuration("127.0.0.1:1")
        self.shares("facade", [
            {"MOONCAKE_CONFIG_PATH": config, "FIRNKV_SOCKET": node,
             "PYTHONPATH": path} for node in cluster.sockets], 5)
        self.assertGreater(cluster.metric("firnkv_node_blocks"), 0)

    def test_real_store(self):
        port, metrics = free_port(), free_port()
        master = Program("mooncake master", [
            os.path.join(engine.options.vllm, "bin", "mooncake_master"),
            f"--rpc_port={port}", f"--metrics_port={metrics}"],
            engine.environment())
        self.addCleanup(master.kill)
        segment = Program("mooncake segment", [
            os.path.join(engine.options.vllm, "bin", "python"),
            os.path.join(engine.HERE, "mooncake_segment.py"),
            f"127.0.0.1:{port}", str(256 << 20)], engine.environment(),
            ready="the segment is there")
        self.addCleanup(segment.kill)
        config = configuration(f"127.0.0.1:{port}")
        self.shares("real store",
                    [{"MOONCAKE_CONFIG_PATH": config}] * 2, 5)
