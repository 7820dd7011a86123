"""vLLM's contract of a KV connector, against a real node: a small scheduler of
its shape, workers with tensors of its shape. Lookups never wait, loads and saves
end once, what is not there is told by block.
"""

import array
import logging
import types
import unittest

import vllm_shapes
from vllm_shapes import KVConnectorRole

from firnkv import Chain
from firnkv.vllm.connector import FirnKVConnector
from firnkv.vllm.layout import Layout
from real_node import DEADLINE, RealNode, until

TOKENS = 16
BLOCKS = 32
SHORT = 0.3


def space(**fields):
    return types.SimpleNamespace(**fields)


class FullAttentionSpec:
    pass


class SlidingWindowSpec:
    pass


class Tensor:
    """Shaped as a torch tensor of bytes in host memory."""

    dtype = "torch.bfloat16"

    def __init__(self, shape, strides=None, device="cpu", item=2):
        self.shape = shape
        self.device = space(type=device)
        self.item = item
        dense = []
        for size in reversed(shape):
            dense.insert(0, dense[0] * last if dense else 1)
            last = size
        self.strides = strides or tuple(dense)
        self.items = 1 + sum((size - 1) * step
                             for size, step in zip(shape, self.strides))
        self.memory = array.array("B", bytes(self.items * item))

    def stride(self):
        return self.strides

    def element_size(self):
        return self.item

    def data_ptr(self):
        return self.memory.buffer_info()[0]

    def fill(self, start, text):
        some = (text * (len(self.memory) // len(text) + 1))
        self.memory[start:] = array.array("B", some[:len(self.memory) - start])


def config(socket, ranks=1, rank=0, **extra):
    """Shaped as VllmConfig."""
    hf = space(num_hidden_layers=2, num_key_value_heads=2, head_dim=32,
               rope_theta=1e4, _commit_hash="c0ffee")
    return space(
        model_config=space(model="org/model", tokenizer="org/model",
                           dtype="torch.bfloat16", hf_config=hf,
                           hf_text_config=hf),
        cache_config=space(block_size=TOKENS, cache_dtype="auto",
                           prefix_caching_hash_algo="sha256"),
        parallel_config=space(tensor_parallel_size=ranks, world_size=ranks,
                              rank=rank, pipeline_parallel_size=1,
                              decode_context_parallel_size=1),
        kv_transfer_config=space(
            kv_load_failure_policy="recompute",
            kv_connector_extra_config={
                "socket_path": socket, "lookup_deadline": DEADLINE,
                "load_deadline": DEADLINE, "save_deadline": DEADLINE, **extra}))


def caches(spec=FullAttentionSpec, groups=1):
    return space(num_blocks=BLOCKS, kv_cache_groups=[
        space(kv_cache_spec=spec())] * groups)


def request(rid, blocks, first=0):
    """Of so many full blocks and one token more."""
    return space(request_id=rid, num_tokens=blocks * TOKENS + 1,
                 block_hashes=[b"%032d" % (first + i) for i in range(blocks)])


def output(new=(), running=(), scheduled=None, preempted=(), resumed=()):
    """Shaped as SchedulerOutput. `new`: (request, block ids, computed);
    `running`: (id, added block ids, computed)."""
    return space(
        scheduled_new_reqs=[
            space(req_id=each.request_id, block_ids=(ids,),
                  num_computed_tokens=computed) for each, ids, computed in new],
        scheduled_cached_reqs=space(
            req_ids=[rid for rid, _, _ in running],
            resumed_req_ids=set(resumed),
            new_block_ids=[(ids,) if ids else None for _, ids, _ in running],
            num_computed_tokens=[computed for _, _, computed in running]),
        num_scheduled_tokens=scheduled or {},
        preempted_req_ids=set(preempted))


class Engine:
    """A scheduler's connector and its workers', stepped as vLLM does."""

    def __init__(self, socket, ranks=1, silent=(), **extra):
        self.scheduler = FirnKVConnector(
            config(socket, ranks, **extra), KVConnectorRole.SCHEDULER, caches())
        self.tensors, self.workers = [], []
        for rank in range(ranks):
            worker = FirnKVConnector(config(socket, ranks, rank, **extra),
                                     KVConnectorRole.WORKER, caches())
            tensors = {f"layer{i}": Tensor((2, BLOCKS, TOKENS, 2, 32))
                       for i in range(2)}
            worker.register_kv_caches(tensors)
            self.tensors.append(tensors)
            self.workers.append(worker)
        self.silent = set(silent)
        self.scheduler.set_xfer_handshake_metadata(
            {rank: worker.get_handshake_metadata()
             for rank, worker in enumerate(self.workers)})
        self.saved, self.received, self.missing = [], [], set()

    def close(self):
        for each in (self.scheduler, *self.workers):
            each.shutdown()

    def write(self, rank, block, number):
        """What a forward pass leaves in a block."""
        for i, tensor in enumerate(self.tensors[rank].values()):
            view = memoryview(tensor.memory)
            half, size = len(view) // 2, len(view) // 2 // BLOCKS
            for side in range(2):
                at = side * half + block * size
                some = b"%d.%d.%d.%d " % (rank, number, i, side)
                view[at:at + size] = (some * size)[:size]

    def read(self, rank, block):
        found = []
        for tensor in self.tensors[rank].values():
            view = memoryview(tensor.memory)
            half, size = len(view) // 2, len(view) // 2 // BLOCKS
            found += [bytes(view[side * half + block * size:][:size])
                      for side in range(2)]
        return found

    def step(self, scheduled=None, finished=()):
        meta = self.scheduler.build_connector_meta(scheduled or output())
        saved, received, missing = [], [], set()
        for rank, worker in enumerate(self.workers):
            worker.bind_connector_metadata(meta)
            worker.handle_preemptions(meta)
            worker.start_load_kv(None)
            if rank not in self.silent:
                worker.wait_for_save()
            done = worker.get_finished(set(finished))
            saved += sorted(done[0] or ())
            received += sorted(done[1] or ())
            missing |= worker.get_block_ids_with_load_errors()
            worker.clear_connector_metadata()
        self.saved += saved
        self.received += received
        self.missing |= missing
        self.scheduler.update_connector_output(space(
            invalid_block_ids=missing, finished_recving=set(received)))

    def matched(self, asked, computed=0):
        def done():
            found = self.scheduler.get_num_new_matched_tokens(asked, computed)
            return None if found[0] is None else found
        return until("a lookup's answer", done)

    def allocate(self, asked, ids, external):
        self.scheduler.update_state_after_alloc(
            asked, space(get_block_ids=lambda: (ids,)), external)

    def compute(self, asked, ids):
        """A request from its allocation to the end of its saves."""
        self.allocate(asked, ids, 0)
        for block, each in zip(ids, asked.block_hashes):
            for rank in range(len(self.workers)):
                self.write(rank, block, int(each))
        self.step(output(new=[(asked, ids, 0)],
                         scheduled={asked.request_id: asked.num_tokens}))
        later = self.scheduler.request_finished(asked, ids)[0]
        self.step(finished=[asked.request_id])
        if later:
            self.until_saved(asked.request_id)
        return later

    def until_saved(self, rid):
        def done():
            self.step()
            return rid in self.saved
        until("its saves end", done)

    def until_received(self, rid):
        def done():
            self.step()
            return rid in self.received
        until("its load ends", done)


class ConnectorTest(unittest.TestCase):
    def setUp(self):
        logging.getLogger("firnkv").setLevel(logging.CRITICAL)
        self.node = RealNode()
        self.addCleanup(self.node.remove)

    def engine(self, **options):
        engine = Engine(self.node.socket, **options)
        self.addCleanup(engine.close)
        return engine

    def opened(self, **options):
        engine = self.engine(**options)
        for namespace in (*(each._worker._namespace for each in engine.workers),
                          *engine.scheduler._scheduler._namespaces.values()):
            until("it opens", lambda: namespace.exists(
                engine_chain(10**9), deadline=DEADLINE).why == "")
        return engine

    def test_another_engine_loads_what_one_has_saved(self):
        self.node.start()
        one, other = self.opened(), self.opened()
        self.assertTrue(one.compute(request("a", 4), [3, 4, 5, 6, 7]))
        self.assertEqual(one.saved, ["a"])
        again = request("b", 4)
        self.assertEqual(other.matched(again), (4 * TOKENS, True))
        other.allocate(again, [10, 11, 12, 13, 14], 4 * TOKENS)
        other.until_received("b")
        self.assertEqual(other.missing, set())
        for i in range(4):
            self.assertEqual(other.read(0, 10 + i), one.read(0, 3 + i))
        for _ in range(3):
            other.step()
        self.assertEqual(other.received, ["b"])

    def test_a_lookup_says_none_until_it_is_answered(self):
        self.node.start()
        engine = self.opened()
        engine.compute(request("a", 3), [1, 2, 3, 4])
        asked = request("b", 3)
        self.assertEqual(
            engine.scheduler.get_num_new_matched_tokens(asked, 0),
            (None, False))
        self.assertEqual(engine.matched(asked), (3 * TOKENS, True))
        # Asked again, it has no effect of its own.
        self.assertEqual(engine.matched(asked), (3 * TOKENS, True))
        self.assertEqual(engine.matched(asked, TOKENS), (2 * TOKENS, True))
        self.assertEqual(engine.matched(asked, TOKENS + 1), (0, False))

    def test_never_the_whole_prompt(self):
        self.node.start()
        engine = self.opened()
        engine.compute(request("a", 3), [1, 2, 3, 4])
        whole = request("b", 3)
        whole.num_tokens = 3 * TOKENS
        self.assertEqual(engine.matched(whole), (2 * TOKENS, True))

    def test_a_hit_is_one_of_every_rank(self):
        self.node.start()
        half = self.opened(ranks=2, silent=[1])
        both = self.opened(ranks=2)
        half.compute(request("a", 3), [1, 2, 3, 4])
        self.assertEqual(both.matched(request("b", 3)), (0, False))
        both.compute(request("c", 2), [5, 6, 7])
        self.assertEqual(both.matched(request("d", 3)), (2 * TOKENS, True))
        reader = self.opened(ranks=2)
        asked = request("e", 2)
        self.assertEqual(reader.matched(asked), (2 * TOKENS, True))
        reader.allocate(asked, [8, 9, 10], 2 * TOKENS)
        until("both have it", lambda: reader.step() or
              reader.received.count("e") == 2)
        for rank in range(2):
            self.assertEqual(reader.read(rank, 8), both.read(rank, 5))
        self.assertNotEqual(reader.read(0, 8), reader.read(1, 8))

    def test_blocks_that_are_gone_are_told_with_their_load(self):
        self.node.start()
        engine = self.opened()
        engine.compute(request("a", 4), [1, 2, 3, 4, 5])
        asked = request("b", 4)
        self.assertEqual(engine.matched(asked), (4 * TOKENS, True))
        # Evicted between match and load.
        chain = Chain(block_tokens=TOKENS)
        chain.extend(asked.block_hashes)
        namespace = engine.workers[0]._worker._namespace
        self.assertEqual(namespace.remove(chain[2:3],
                                          deadline=DEADLINE).removed, 1)
        ids = [10, 11, 12, 13, 14]
        engine.allocate(asked, ids, 4 * TOKENS)
        engine.until_received("b")
        self.assertEqual(engine.missing, {12, 13})
        # It is computed now, not looked up again and again; then it is there.
        self.assertEqual(engine.matched(asked, 2 * TOKENS), (0, False))
        engine.allocate(asked, ids, 0)
        for i in (2, 3):
            engine.write(0, ids[i], i)
        engine.step(output(new=[(asked, ids, 2 * TOKENS)],
                           scheduled={"b": 2 * TOKENS + 1}))
        engine.scheduler.request_finished(asked, ids)
        engine.step(finished=["b"])
        engine.until_saved("b")
        self.assertEqual(engine.matched(request("c", 4)), (4 * TOKENS, True))

    def test_blocks_are_saved_as_they_fill(self):
        self.node.start()
        engine = self.opened()
        asked = request("a", 2)
        engine.allocate(asked, [1, 2, 3], 0)
        engine.step(output(new=[(asked, [1, 2, 3], 0)],
                           scheduled={"a": TOKENS + 3}))
        engine.step(output(running=[("a", None, TOKENS + 3)],
                           scheduled={"a": TOKENS - 2}))
        # While it decodes, a hash may come later than its block.
        engine.step(output(running=[("a", [4], 2 * TOKENS + 1)],
                           scheduled={"a": TOKENS}))
        asked.block_hashes.append(b"%032d" % 2)
        engine.step(output(running=[("a", None, 3 * TOKENS + 1)],
                           scheduled={"a": 1}))
        self.assertTrue(engine.scheduler.request_finished(asked, [])[0])
        engine.step(finished=["a"])
        engine.until_saved("a")
        self.assertEqual(engine.matched(request("b", 3)), (3 * TOKENS, True))

    def test_no_save_is_left_when_a_request_is_preempted(self):
        self.node.start()
        engine = self.opened()
        asked = request("a", 4)
        engine.allocate(asked, [1, 2, 3, 4, 5], 0)
        engine.step(output(new=[(asked, [1, 2, 3, 4, 5], 0)],
                           scheduled={"a": asked.num_tokens}))
        engine.step(output(preempted=["a"]))
        self.assertEqual(engine.workers[0]._worker._saving["a"], 0)
        # Resumed in other blocks; what it saved before is not saved again.
        ids = [6, 7, 8, 9, 10]
        engine.allocate(asked, ids, 0)
        meta = engine.scheduler.build_connector_meta(output(
            running=[("a", ids, 0)], resumed=["a"],
            scheduled={"a": asked.num_tokens}))
        self.assertEqual(meta.plan.saves, [])

    def test_a_request_without_saves_keeps_no_blocks(self):
        self.node.start()
        engine = self.opened()
        self.assertFalse(engine.compute(request("a", 0), [1]))
        self.assertEqual(engine.saved, [])

    def test_a_request_that_ends_while_it_loads_is_told_as_loaded_only(self):
        self.node.start()
        engine = self.opened()
        engine.compute(request("a", 3), [1, 2, 3, 4])
        asked = request("b", 3)
        engine.matched(asked)
        engine.allocate(asked, [5, 6, 7, 8], 3 * TOKENS)
        engine.step()
        if "b" not in engine.received:
            self.assertFalse(engine.scheduler.request_finished(asked, [])[0])
            engine.step(finished=["b"])
            until("its load ends", lambda: engine.step() or
                  "b" in engine.received)
        self.assertEqual(engine.received, ["b"])
        self.assertEqual(engine.saved, ["a"])

    def test_without_a_node_all_is_a_miss(self):
        engine = self.engine(lookup_deadline=SHORT, load_deadline=SHORT,
                             save_deadline=SHORT)
        self.assertEqual(engine.matched(request("a", 3)), (0, False))
        self.assertTrue(engine.compute(request("a", 3), [1, 2, 3, 4]))
        self.assertEqual(engine.saved, ["a"])

    def test_a_node_killed_between_match_and_load_costs_the_load(self):
        self.node.start()
        engine = self.opened(load_deadline=2.0, save_deadline=2.0,
                             lookup_deadline=2.0)
        engine.compute(request("a", 3), [1, 2, 3, 4])
        asked = request("b", 3)
        self.assertEqual(engine.matched(asked), (3 * TOKENS, True))
        self.node.kill()
        namespace = engine.workers[0]._worker._namespace
        until("the node is gone for the worker", lambda: not namespace.write(
            engine_chain(90), [bytes(space_bytes(engine))],
            deadline=SHORT).stored)
        engine.allocate(asked, [5, 6, 7, 8], 3 * TOKENS)
        engine.until_received("b")
        self.assertEqual(engine.missing, {5, 6, 7})
        self.assertEqual(engine.received, ["b"])
        self.assertEqual(engine.matched(request("c", 3)), (0, False))
        self.assertTrue(engine.compute(request("d", 3, 50), [1, 2, 3, 4]))


def engine_chain(number):
    chain = Chain(block_tokens=TOKENS)
    chain.append(b"%032d" % number)
    return chain


def space_bytes(engine):
    return engine.workers[0]._handshake.block_bytes


class SettingTest(unittest.TestCase):
    def connector(self, role=KVConnectorRole.WORKER, **changes):
        made = FirnKVConnector(config("/nowhere/node.sock"), role,
                               caches(**changes))
        self.addCleanup(made.shutdown)
        return made

    def test_what_it_cannot_keep_it_says_and_leaves_alone(self):
        for changes, why in (({"groups": 2}, "2 groups"),
                             ({"spec": SlidingWindowSpec}, "SlidingWindow")):
            with self.assertLogs("firnkv.vllm", logging.WARNING) as said:
                self.connector(KVConnectorRole.SCHEDULER, **changes)
            self.assertIn(why, said.output[0])
            worker = self.connector(**changes)
            worker.register_kv_caches({"a": Tensor((BLOCKS, 2, TOKENS, 64))})
            self.assertIsNone(worker.get_handshake_metadata())
            self.assertEqual(worker.get_finished({"x"}), (None, None))

    def test_memory_of_a_device_is_left_alone(self):
        worker = self.connector()
        with self.assertLogs("firnkv.vllm", logging.WARNING) as said:
            worker.register_kv_caches(
                {"a": Tensor((BLOCKS, 2, TOKENS, 64), device="cuda")})
        self.assertIn("cuda", said.output[0])
        self.assertIsNone(worker.get_handshake_metadata())

    def test_a_scheduler_without_all_its_workers_matches_nothing(self):
        scheduler = self.connector(KVConnectorRole.SCHEDULER)
        with self.assertLogs("firnkv.vllm", logging.WARNING):
            scheduler.set_xfer_handshake_metadata({})
        self.assertEqual(scheduler.get_num_new_matched_tokens(
            request("a", 3), 0), (0, False))

    def test_it_is_best_effort_and_takes_the_hybrid_manager(self):
        self.assertFalse(self.connector().requires_kv_delivery)
        self.assertTrue(issubclass(FirnKVConnector, vllm_shapes.SupportsHMA))


class LayoutTest(unittest.TestCase):
    def pieces(self, tensor, block):
        layout = Layout({"a": tensor}, BLOCKS)
        base = tensor.data_ptr()
        return [(address - base, size) for address, size in
                layout.memory(block)], layout

    def test_blocks_first_is_one_piece(self):
        found, layout = self.pieces(Tensor((BLOCKS, 2, TOKENS, 64)), 3)
        self.assertEqual(found, [(3 * 4096, 4096)])
        self.assertEqual(layout.block_bytes, 4096)

    def test_keys_and_values_apart_are_two(self):
        found, _ = self.pieces(Tensor((2, BLOCKS, TOKENS, 64)), 3)
        self.assertEqual(found, [(3 * 2048, 2048),
                                 (BLOCKS * 2048 + 3 * 2048, 2048)])

    def test_axes_that_lie_otherwise_make_another_layout(self):
        plain = Tensor((BLOCKS, 2, TOKENS, 64))
        turned = Tensor((BLOCKS, 2, TOKENS, 64), (2048, 64, 128, 1))
        self.assertEqual(self.pieces(turned, 1)[0], [(4096, 4096)])
        self.assertNotEqual(Layout({"a": plain}, BLOCKS).text,
                            Layout({"a": turned}, BLOCKS).text)

    def test_padding_between_blocks_is_left_out(self):
        padded = Tensor((BLOCKS, 2, TOKENS, 64), (4096, 1024, 64, 1))
        self.assertEqual(self.pieces(padded, 2)[0], [(2 * 8192, 4096)])

    def test_layers_that_share_memory_are_saved_once(self):
        one = Tensor((BLOCKS, 2, TOKENS, 64))
        self.assertEqual(Layout({"a": one, "b": one}, BLOCKS).block_bytes, 4096)

    def test_what_is_not_whole_is_refused(self):
        for tensor in (Tensor((7, 2, TOKENS, 64)),
                       Tensor((BLOCKS, TOKENS, 64), (2048, 128, 1))):
            with self.assertRaises(ValueError):
                Layout({"a": tensor}, BLOCKS)
        with self.assertRaises(ValueError):
            Layout({"a": Tensor((BLOCKS, 64))}, BLOCKS).memory(BLOCKS)


if __name__ == "__main__":
    unittest.main()
