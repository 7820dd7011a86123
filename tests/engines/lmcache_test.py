"""LMCache's multiprocess server with our client, and real vLLM engines through
it: what one has computed another one finds through another server, so in
FirnKV."""

import json
import os
import socket
import unittest

import engine
from cluster import Cluster
from engine import PREFIX_TOKENS, PREFIXES, Engine, Plain, Program, cached

CHUNK = 32


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server(Program):
    """lmcache server. Nothing is left of one that has ended."""

    def __init__(self, name, node_socket):
        self.port, http = free_port(), free_port()
        client = {"socket_path": node_socket, "kv_dtype": "bf16",
                  "weights_revision": "of the test", "get_deadline": 20.0,
                  "set_deadline": 20.0, "exists_deadline": 20.0}
        super().__init__(name, [
            os.path.join(engine.options.vllm, "bin", "lmcache"), "server",
            "--host", "127.0.0.1", "--port", str(self.port),
            "--http-host", "127.0.0.1", "--http-port", str(http),
            "--chunk-size", str(CHUNK), "--l1-size-gb", "1",
            "--eviction-policy", "LRU", "--supported-transfer-mode", "auto",
            "--l2-adapter", json.dumps({
                "type": "native_plugin", "module_path": "firnkv.lmcache",
                "class_name": "Client", "adapter_params": client})],
            engine.environment())
        self.wait_for_port()

    def wait_for_port(self):
        from real_node import until

        def answers():
            self.check()
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", self.port)) == 0
        for _ in range(20):  # Each waits for a minute.
            try:
                return until("the server listens", answers)
            except AssertionError as late:
                if "did not happen" not in str(late):
                    raise
        raise AssertionError("the server does not listen:\n"
                             + engine.tail(self.log))


class LmcacheTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster()
        cls.addClassCleanup(cls.cluster.remove)

    def through(self, name, node_socket, family):
        """An engine of its own through a server of its own; both are gone
        afterwards."""
        server = Server(f"lmcache {name}", node_socket)
        try:
            # Its connector does not run in one process with the engine's core.
            one = Engine(f"vllm with lmcache {name}", {
                "kv_connector": "LMCacheMPConnector", "kv_role": "kv_both",
                "kv_connector_extra_config": {
                    "lmcache.mp.host": "tcp://127.0.0.1",
                    "lmcache.mp.port": server.port}},
                env={"VLLM_ENABLE_V1_MULTIPROCESSING": "1"})
            try:
                return one.generate(family)
            finally:
                one.end()
        finally:
            server.kill()

    def test_hits_come_from_firnkv(self):
        one = self.through("first", self.cluster.sockets[0], 4)
        stored = self.cluster.metric("firnkv_node_blocks")
        other = self.through("second", self.cluster.sockets[1], 4)
        print(f"LmcacheTest: {stored:.0f} blocks stored; after a new server the "
              f"first engine had found {cached(one)}, the second "
              f"{cached(other)} of {PREFIX_TOKENS} tokens", flush=True)
        self.assertEqual(cached(one), [0] * PREFIXES)
        self.assertGreaterEqual(stored, PREFIXES * PREFIX_TOKENS // CHUNK)
        self.assertEqual(cached(other), [PREFIX_TOKENS] * PREFIXES)
        for found in (one, other):
            self.assertEqual(engine.tokens(found), Plain.tokens(4))
