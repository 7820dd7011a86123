"""vLLM's contract of a secondary tier, against a real node: lookups never wait,
each job is told once and only when its memory is at rest, and whatever fails is
a miss.
"""

import collections
import logging
import pathlib
import types
import unittest

import vllm_shapes
from vllm_shapes import LookupResult, SecondaryTierFactory, TransferJob

import firnkv.vllm
from firnkv import contracts
from firnkv.vllm import tier as tier_module
from firnkv.vllm.tier import FirnKVTier
from real_node import DEADLINE, RealNode, content, until

ROW = 4096
ROWS = 64
SHORT = 0.3


def spec(**changes):
    """Shaped as vLLM's OffloadingSpec."""
    config = types.SimpleNamespace(
        model=types.SimpleNamespace(name="org/model", dtype="bfloat16"),
        parallel=types.SimpleNamespace(tp_size=1, pp_size=1, dcp_size=1),
        cache=types.SimpleNamespace(blocks_per_chunk=1),
        groups=(types.SimpleNamespace(tokens_per_block=16,
                                      layer_names=("a", "b")),),
        worker_kv_bytes_per_block=ROW, kv_cache_layout="HND", **changes)
    return types.SimpleNamespace(config=config, blocks_per_chunk=1,
                                 tokens_per_block=(16,))


class Engine:
    """A tier with a primary view of its own."""

    def __init__(self, socket, **options):
        self.memory = bytearray(ROW * ROWS)
        options = {"lookup_deadline": DEADLINE, "load_deadline": DEADLINE,
                   "store_deadline": DEADLINE, "weights_revision": "c0ffee",
                   **options}
        self.view = memoryview(self.memory).cast("B", (ROWS, ROW))
        self.tier = FirnKVTier(
            offloading_spec=spec(), primary_kv_view=self.view,
            tier_type="firnkv", backpressure_detector=None, socket_path=socket,
            **options)
        self.told = collections.Counter()
        self.results = {}

    def fill(self, row, number):
        self.memory[row * ROW:(row + 1) * ROW] = content(number, ROW)

    def row(self, row):
        return bytes(self.memory[row * ROW:(row + 1) * ROW])

    def poll(self):
        for result in self.tier.get_finished_jobs():
            self.told[result.job_id] += 1
            self.results[result.job_id] = result

    def ended(self, job_id):
        def done():
            self.poll()
            return self.results.get(job_id)
        return until(f"job {job_id} ends", done)

    def store(self, job_id, keys, rows):
        self.tier.submit_store(TransferJob(job_id, keys, rows, False))
        return self.ended(job_id)

    def load(self, job_id, keys, rows):
        self.tier.submit_load(TransferJob(job_id, keys, rows, True))
        return self.ended(job_id)

    def verdict(self, key):
        """What a scheduler comes to know in the end."""
        def done():
            answer = self.tier.lookup(key, None)
            self.tier.on_schedule_end(None)
            return None if answer is LookupResult.RETRY else answer
        return until("a verdict", done)


def key(number):
    return b"%032d" % number + b"\0\0\0\0"


class TierTest(unittest.TestCase):
    def setUp(self):
        logging.getLogger("firnkv").setLevel(logging.CRITICAL)
        self.node = RealNode()
        self.addCleanup(self.node.remove)

    def engine(self, **options):
        engine = Engine(self.node.socket, **options)
        self.addCleanup(engine.tier.shutdown)
        return engine

    def stands_still(self):
        tasks = pathlib.Path(f"/proc/{self.node.process.pid}/task")
        return all(") T" in (task / "stat").read_text()
                   for task in tasks.iterdir())

    def opened(self, **options):
        engine = self.engine(**options)
        until("its namespace opens", lambda: engine.tier._namespace.exists(
            [key(10**9)], deadline=DEADLINE).why == "")
        return engine

    def test_another_engine_finds_what_one_has_stored(self):
        self.node.start()
        one, other = self.opened(), self.opened()
        for row in range(8):
            one.fill(row, row)
        keys = [key(number) for number in range(8)]
        self.assertTrue(one.store(1, keys, range(8)).success)
        self.assertIs(other.verdict(keys[0]), LookupResult.HIT)
        result = other.load(7, keys, range(20, 28))
        self.assertTrue(result.success)
        self.assertEqual(result.transfer_bytes, 8 * ROW)
        for row in range(8):
            self.assertEqual(other.row(20 + row), content(row, ROW))

    def test_a_lookup_says_retry_and_then_what_is_there(self):
        self.node.start()
        one, other = self.opened(), self.opened()
        one.store(1, [key(1)], [0])
        asked = [key(1), key(2)]
        self.assertEqual([other.tier.lookup(each, None) for each in asked],
                         [LookupResult.RETRY] * 2)
        self.assertEqual(other.tier._namespace.name, "vllm-tier")
        self.assertIs(other.verdict(key(1)), LookupResult.HIT)
        self.assertIs(other.verdict(key(2)), LookupResult.MISS)

    def test_a_lookup_is_answered_where_no_hook_tells_the_end_of_a_pass(self):
        self.node.start()
        one = self.opened()
        one.store(1, [key(1)], [0])
        other = self.opened()
        until("a hit", lambda: other.tier.lookup(key(1), None)
              is LookupResult.HIT)

    def test_keys_of_a_pass_are_asked_for_in_one_call(self):
        self.node.start()
        engine = self.opened()
        before = engine.tier._session.client.stats()
        for number in range(200):
            engine.tier.lookup(key(number), None)
        engine.tier.on_schedule_end(None)
        self.assertEqual(len(engine.tier._session._waiting), 1, before)

    def test_each_job_is_told_once(self):
        self.node.start()
        engine = self.opened()
        big = tier_module.BATCH
        self.addCleanup(setattr, tier_module, "BATCH", big)
        tier_module.BATCH = 3  # So that jobs have several calls.
        jobs = range(12)
        for job in jobs:
            rows = range(job, job + 5)
            keys = [key(100 * job + row) for row in rows]
            submit = (engine.tier.submit_load if job % 3 == 2
                      else engine.tier.submit_store)
            submit(TransferJob(job, keys, rows, job % 3 == 2))
        self.assertTrue(engine.tier.has_pending_work())
        for job in jobs:
            engine.ended(job)
        engine.tier.drain_jobs()
        for _ in range(3):
            engine.poll()
        self.assertEqual(engine.told, {job: 1 for job in jobs})
        for job in jobs:
            self.assertEqual(engine.results[job].success, job % 3 != 2)
        self.assertFalse(engine.tier.has_pending_work())

    def test_a_job_without_keys_ends(self):
        self.node.start()
        engine = self.opened()
        self.assertTrue(engine.store(1, [], []).success)

    def test_a_failed_load_makes_the_verdict_a_miss(self):
        self.node.start()
        engine = self.opened()
        engine.store(1, [key(1), key(2)], [0, 1])
        self.assertIs(engine.verdict(key(2)), LookupResult.HIT)
        # Evicted between match and load.
        self.assertEqual(engine.tier._namespace.remove(
            [key(2)], deadline=DEADLINE).removed, 1)
        result = engine.load(2, [key(1), key(2)], [10, 11])
        self.assertFalse(result.success)
        self.assertEqual(list(result.successful_keys), [key(1)])
        self.assertEqual(engine.row(10), engine.row(0))
        self.assertIs(engine.tier.lookup(key(2), None), LookupResult.MISS)
        self.assertIs(engine.tier.lookup(key(1), None), LookupResult.HIT)

    def test_drain_jobs_ends_all_and_loses_none(self):
        self.node.start()
        engine = self.opened()
        for job in range(5):
            engine.tier.submit_store(TransferJob(job, [key(job)], [job], False))
        engine.tier.drain_jobs()
        self.assertFalse(engine.tier._jobs)
        engine.poll()
        self.assertEqual(engine.told, {job: 1 for job in range(5)})

    def test_it_opens_without_being_asked(self):
        engine = self.engine()
        self.node.start()
        until("it is open", lambda: engine.tier._namespace.opened)

    def test_without_a_node_all_is_a_miss(self):
        engine = self.engine(lookup_deadline=SHORT, load_deadline=SHORT,
                             store_deadline=SHORT)
        self.assertIs(engine.verdict(key(1)), LookupResult.MISS)
        self.assertFalse(engine.store(1, [key(1)], [0]).success)
        self.assertFalse(engine.load(2, [key(1)], [0]).success)

        self.node.start()
        job = iter(range(3, 10**6))
        until("it stores once there is one", lambda: engine.store(
            next(job), [key(1)], [0]).success)

    def test_a_stopped_node_costs_the_deadline(self):
        self.node.start()
        engine = self.opened(lookup_deadline=SHORT, load_deadline=SHORT,
                             store_deadline=SHORT)
        until("it stores", lambda: engine.tier._namespace.write(
            [key(1)], [content(1, ROW)], deadline=DEADLINE).stored)
        self.node.stop()
        until("all its threads stand still", self.stands_still)
        try:
            self.assertFalse(engine.load(1, [key(1)], [0]).success)
            self.assertFalse(engine.store(2, [key(2)], [1]).success)
            self.assertIs(engine.verdict(key(3)), LookupResult.MISS)
        finally:
            self.node.go_on()

    def test_a_node_killed_under_load_costs_misses(self):
        self.node.start()
        engine = self.opened(load_deadline=2.0, store_deadline=2.0)
        jobs = range(40)
        for job in jobs:
            engine.tier.submit_store(TransferJob(
                job, [key(job * 10 + i) for i in range(8)],
                range(job % 8 * 8, job % 8 * 8 + 8), False))
            if job == 20:
                self.node.kill()
        for job in jobs:
            engine.ended(job)
        engine.poll()
        self.assertEqual(engine.told, {job: 1 for job in jobs})
        self.assertFalse(engine.results[39].success)
        self.assertFalse(engine.load(100, [key(390)], [0]).success)

    def test_shutdown_leaves_nothing_in_flight(self):
        self.node.start()
        engine = self.opened()
        for job in range(20):
            engine.tier.submit_store(TransferJob(job, [key(job)], [job], False))
        engine.tier.shutdown()
        self.assertFalse(engine.tier._jobs)
        engine.view.release()  # As vLLM does next.
        engine.tier.shutdown()


class SettingTest(unittest.TestCase):
    def test_the_entry_point_registers_once(self):
        firnkv.vllm.register()
        firnkv.vllm.register()
        self.assertEqual(SecondaryTierFactory.registry["firnkv"],
                         ("firnkv.vllm.tier", "FirnKVTier"))

    def test_what_no_key_says_makes_another_contract(self):
        def made(rows=ROW, **fields):
            return tier_module.contract_of(
                spec(), None, rows, **{"weights_revision": "a", **fields})
        some = [made(), made(rows=2 * ROW), made(weights_revision="b"),
                made(kv_dtype="fp8")]
        self.assertEqual(len(set(map(repr, some))), 4)

    def test_a_model_without_a_revision_is_refused_by_name(self):
        with self.assertRaisesRegex(ValueError, "weights_revision"):
            tier_module.contract_of(spec(), None, ROW)

    def test_older_releases_find_their_names(self):
        self.assertIs(FirnKVTier.get_finished, FirnKVTier.get_finished_jobs)
        self.assertEqual(FirnKVTier.get_tier_type(), "firnkv")

    def test_hashes_that_differ_are_told_to_the_log(self):
        node = RealNode().start()
        self.addCleanup(node.remove)
        logging.getLogger("firnkv").setLevel(logging.NOTSET)
        first = Engine(node.socket)
        self.addCleanup(first.tier.shutdown)
        with self.assertLogs("firnkv.vllm", logging.INFO) as said:
            first.tier.lookup(key(1), None)
            until("it is the first", lambda: said.output)
        self.assertIn("first", said.output[0])
        self.addCleanup(setattr, vllm_shapes.sys.modules[
            "vllm.v1.core.kv_cache_utils"], "NONE_HASH", b"n" * 32)
        vllm_shapes.sys.modules[
            "vllm.v1.core.kv_cache_utils"].NONE_HASH = b"other" * 6
        second = Engine(node.socket)
        self.addCleanup(second.tier.shutdown)
        with self.assertLogs("firnkv.vllm", logging.ERROR) as said:
            second.tier.lookup(key(1), None)
            until("it is told", lambda: said.output)
        self.assertIn("PYTHONHASHSEED", said.output[0])


if __name__ == "__main__":
    unittest.main()
