"""Two real vLLM engines, each on its own node, through the connector and
through the tier: what the first has computed the second one finds, and both say,
token by token, what an engine without any cache says.
"""

import threading
import time
import unittest

import engine
from cluster import Cluster, Pool
from engine import PREFIX_TOKENS, PREFIXES, PROMPTS, Engine, Plain, cached

#: Of the connector's calls, in seconds. A request waits for one lookup and one
#: load at the most.
LOOKUP, LOAD, SAVE = 3.0, 5.0, 10.0
#: How long a stopped daemon is stopped.
STOPPED = 30.0


def connector(socket, **more):
    return {"kv_connector": "FirnKVConnector",
            "kv_connector_module_path": "firnkv.vllm.connector",
            "kv_role": "kv_both", "kv_load_failure_policy": "recompute",
            "kv_connector_extra_config": {
                "socket_path": socket, "lookup_deadline": LOOKUP,
                "load_deadline": LOAD, "save_deadline": SAVE, **more}}


def tier(socket, kind="FirnKVTier", module="firnkv.vllm.tier",
         host_bytes=64 << 20, **more):
    """cpu_tiering: vLLM's own worker for it does not run on CPUs."""
    return {"kv_connector": "OffloadingConnector", "kv_role": "kv_both",
            "kv_connector_extra_config": {
                "spec_name": "CpuTieringSpec", "spec_module_path": "cpu_tiering",
                "cpu_bytes_to_use": host_bytes,
                "secondary_tiers": [{
                    "type": kind, "module_path": module, "socket_path": socket,
                    "lookup_deadline": 10.0, "load_deadline": 20.0,
                    "store_deadline": 20.0, **more}]}}


def percentile(found, percent):
    seconds = sorted(each["seconds"] for each in found)
    return seconds[min(len(seconds) - 1, len(seconds) * percent // 100)]


class Sharing(unittest.TestCase):
    """What both ways in have in common: two engines on two nodes."""

    @classmethod
    def start(cls, transfer, name):
        cls.cluster = Cluster()
        cls.addClassCleanup(cls.cluster.remove)
        cls.engines = [
            Engine(f"{name} {i + 1}", transfer(socket))
            for i, socket in enumerate(cls.cluster.sockets)]
        for each in cls.engines:
            cls.addClassCleanup(each.end)
            each.ready()

    def equal(self, found, family):
        """To what is computed without any cache."""
        self.assertEqual(len(found), PROMPTS)
        self.assertEqual(engine.tokens(found), Plain.tokens(family))

    def shares(self, family):
        one = self.engines[0].generate(family)
        other = self.engines[1].generate(family)
        print(f"{type(self).__name__}: {PROMPTS} prompts; of each prefix' "
              f"{PREFIX_TOKENS} tokens the first engine found {cached(one)}, "
              f"the second {cached(other)}", flush=True)
        # Nobody had computed these before; and then somebody had.
        self.assertEqual(cached(one), [0] * PREFIXES)
        self.assertEqual(cached(other), [PREFIX_TOKENS] * PREFIXES)
        self.equal(one, family)
        self.equal(other, family)


class ConnectorTest(Sharing):
    @classmethod
    def setUpClass(cls):
        cls.start(connector, "connector")

    def test_the_second_engine_finds_what_the_first_has_computed(self):
        self.shares(family=1)

    def test_a_flipped_byte_is_a_miss(self):
        first, second = self.engines
        pool = Pool(self.cluster.nodes[0])
        before = pool.read()
        first.generate(2)
        first.ask("forget")
        changed = self.written_since(before, pool.read())
        pool.flip(changed)
        corrupt = self.cluster.metric("firnkv_node_corrupt_copies_total")
        found = second.generate(2)
        self.equal(found, 2)
        # It was seen, and not only not used.
        self.assertGreater(
            self.cluster.metric("firnkv_node_corrupt_copies_total"), corrupt)
        print("ConnectorTest: one byte flipped: the second engine found "
              f"{cached(found)}, and the node isolated the copy", flush=True)

    def written_since(self, before, after):
        """The address of one byte of a block that was written meanwhile."""
        for begin, now in sorted(after.items()):
            then = before.get(begin) or bytes(len(now))
            for at in range(100, len(now), 4096):
                if now[at] != then[at]:
                    return begin + at
        raise AssertionError("the engine has written no block")

    # --- Faults, while the second engine answers.

    def under(self, name, family, begin, end):
        """`begin` after ten prompts, `end` when STOPPED is over. The first
        engine has computed all of it before, and each prompt is one that the
        second one has to ask for."""
        first, second = self.engines
        first.generate(family)
        healthy = self.healthy(second)
        found, timer = [], threading.Timer(STOPPED, end)
        began = 0.0
        for answer in second.each("generate", family=family, count=PROMPTS):
            found.append(answer)
            if len(found) == 10:
                begin()
                timer.start()
                began = time.monotonic()
        took = time.monotonic() - began
        timer.join()
        self.equal(found, family)
        hits = [each["cached"] == PREFIX_TOKENS for each in found]
        p50, p99 = percentile(found[10:], 50), percentile(found[10:], 99)
        print(f"ConnectorTest: {name}: of 10 prompts before {sum(hits[:10])} "
              f"found, of 40 afterwards {sum(hits[10:])}; those took {took:.0f} "
              f"s, p50 {p50 * 1000:.0f} ms, p99 {p99 * 1000:.0f} ms; without "
              f"a fault nothing found takes {healthy * 1000:.0f} ms, and "
              f"lookup and load have {LOOKUP + LOAD:.0f} s", flush=True)
        # What is measured is what is found; and no request waits for more
        # than a lookup and a load before it is computed.
        self.assertGreaterEqual(sum(hits[:10]), 9)
        self.assertLess(p99, LOOKUP + LOAD + 5 * healthy)

    def healthy(self, second):
        """The slowest of some prompts that nobody has computed."""
        type(self).fresh = getattr(type(self), "fresh", 120) + 1
        return percentile(second.ask("generate", family=self.fresh, count=10),
                          99)

    def test_node_killed(self):
        node = self.cluster.nodes[1]
        self.under("its node killed, and started again", 101, node.kill,
                   node.start)

    def test_node_of_the_blocks_killed(self):
        node = self.cluster.nodes[0]
        self.under("the node that has the blocks killed, and started again",
                   102, node.kill, node.start)

    def test_node_stopped(self):
        node = self.cluster.nodes[1]
        self.under(f"its node stopped for {STOPPED:.0f} s", 103, node.stop,
                   node.go_on)

    def test_catalog_stopped(self):
        catalog = self.cluster.catalog
        self.under(f"the catalog stopped for {STOPPED:.0f} s", 104,
                   catalog.stop, catalog.go_on)


class TierTest(Sharing):
    @classmethod
    def setUpClass(cls):
        cls.start(tier, "tier")

    def test_secondary_tier(self):
        self.shares(family=3)


class AwayTest(unittest.TestCase):
    """No node, no catalog: the engine starts, and serves."""

    def test_without_a_node(self):
        alone = Engine("without a node", connector("/nonexistent/node.sock"))
        self.addCleanup(alone.end)
        found = alone.ask("generate", family=1, count=10)
        self.assertEqual(engine.tokens(found), Plain.tokens(1)[:10])
        self.assertEqual(cached(found), [0] * PREFIXES)
