"""SGLang's contract of a dynamic HiCache backend, with a host pool of its shape:
pages of a rank are blocks, whatever the layout, and no batch call ever raises.
"""

import ctypes
import logging
import types
import unittest

from firnkv.sglang import HiCache
from real_node import DEADLINE, RealNode, until

PAGE = 4
LAYERS = 3
# Of K or V of one layer of one page.
PIECE = 512


class Pool:
    """Shaped as SGLang's host pools: where the pieces of pages are."""

    page_size = PAGE
    layer_num = LAYERS
    head_num = 2
    head_dim = 16
    dtype = "torch.bfloat16"

    def __init__(self, layout, pages=16):
        self.layout = layout
        self.pages = pages
        self.memory = ctypes.create_string_buffer(2 * LAYERS * PIECE * pages)

    def get_page_buffer_meta(self, host_indices):
        base = ctypes.addressof(self.memory)
        half = len(self.memory) // 2
        ptrs, sizes = [], []
        for token in host_indices[::PAGE]:
            page = token // PAGE
            for side in range(2):
                if self.layout == "page_first":
                    ptrs.append(base + side * half + page * LAYERS * PIECE)
                    sizes.append(LAYERS * PIECE)
                    continue
                for layer in range(LAYERS):
                    ptrs.append(base + side * half + PIECE * (
                        layer * self.pages + page))
                    sizes.append(PIECE)
        return ptrs, sizes

    def indices(self, pages):
        return [page * PAGE + i for page in pages for i in range(PAGE)]

    def bytes_of(self, page):
        ptrs, sizes = self.get_page_buffer_meta(self.indices([page]))
        return b"".join(ctypes.string_at(ptr, size)
                        for ptr, size in zip(ptrs, sizes))

    def fill(self, page, text):
        ptrs, sizes = self.get_page_buffer_meta(self.indices([page]))
        for number, (ptr, size) in enumerate(zip(ptrs, sizes)):
            some = b"%s %d " % (text, number)
            ctypes.memmove(ptr, (some * size)[:size], size)


def config(**changes):
    """Shaped as HiCacheStorageConfig."""
    fields = {"tp_rank": 0, "tp_size": 2, "pp_rank": 0, "pp_size": 1,
              "is_mla_model": False, "is_page_first_layout": True,
              "model_name": "org/model", "extra_config": {}, **changes}
    return types.SimpleNamespace(**fields)


class SglangTest(unittest.TestCase):
    def setUp(self):
        logging.getLogger("firnkv.sglang").setLevel(logging.ERROR)
        self.node = RealNode()
        self.addCleanup(self.node.remove)

    def backend(self, pool, extra=None, **changes):
        extra = {"backend_name": "firnkv", "module_path": "firnkv.sglang",
                 "class_name": "HiCache", "interface_v1": 1,
                 "socket_path": self.node.socket, "weights_revision": "c0ffee",
                 "get_deadline": DEADLINE, "set_deadline": DEADLINE,
                 "exists_deadline": DEADLINE, **(extra or {})}
        backend = HiCache(config(extra_config=extra, **changes), {})
        self.addCleanup(backend.close)
        if pool is not None:
            backend.register_mem_pool_host(pool)
        return backend

    def opened(self, pool, **options):
        backend = self.backend(pool, **options)
        until("its namespace opens", lambda: backend.batch_set_v1(
            ["first"], pool.indices([0])) == [True])
        return backend

    def moves(self, layout):
        self.node.start()
        pool = Pool(layout)
        backend = self.opened(pool)
        for page in range(4):
            pool.fill(page, b"page %d" % page)
        keys = [f"{page:064x}" for page in range(4)]
        self.assertEqual(backend.batch_set_v1(keys, pool.indices(range(4))),
                         [True] * 4)
        self.assertEqual(backend.batch_exists(keys), 4)

        got = backend.batch_get_v1(keys + ["other"],
                                   pool.indices(range(8, 13)))

        self.assertEqual(got, [True] * 4 + [False])
        for page in range(4):
            self.assertEqual(pool.bytes_of(8 + page), pool.bytes_of(page))
        self.assertNotEqual(pool.bytes_of(8), pool.bytes_of(9))

    def test_pages_move_page_first(self):
        self.moves("page_first")

    def test_pages_move_layer_first(self):
        self.moves("layer_first")

    def test_exists_counts_from_the_front(self):
        self.node.start()
        pool = Pool("page_first")
        backend = self.opened(pool)
        backend.batch_set_v1(["a", "c"], pool.indices([0, 1]))
        self.assertEqual(backend.batch_exists(["a", "b", "c"]), 1)
        self.assertEqual(backend.batch_exists(["b", "a"]), 0)
        self.assertTrue(backend.exists("c"))
        self.assertEqual(backend.batch_exists([]), 0)

    def test_ranks_have_pages_of_their_own(self):
        self.node.start()
        pool = Pool("page_first")
        first = self.opened(pool, tp_rank=0)
        second = self.opened(pool, tp_rank=1)
        first.batch_set_v1(["a"], pool.indices([0]))
        self.assertEqual(first.batch_exists(["a"]), 1)
        self.assertEqual(second.batch_exists(["a"]), 0)

    def test_ranks_share_pages_that_are_the_same_for_all(self):
        self.node.start()
        pool = Pool("page_first")
        first = self.opened(pool, tp_rank=0, is_mla_model=True)
        second = self.opened(pool, tp_rank=1, is_mla_model=True)
        first.batch_set_v1(["a"], pool.indices([0]))
        self.assertEqual(second.batch_exists(["a"]), 1)

    def test_another_layout_shares_nothing(self):
        self.node.start()
        one, other = Pool("page_first"), Pool("layer_first")
        self.opened(one).batch_set_v1(["a"], one.indices([0]))
        self.assertEqual(self.opened(other).batch_exists(["a"]), 0)

    def test_memory_of_the_callers_works_too(self):
        self.node.start()
        backend = self.opened(Pool("page_first"))
        self.assertTrue(backend.set("a", b"one page"))
        landing = bytearray(8)
        self.assertIs(backend.get("a", landing), landing)
        self.assertEqual(bytes(landing), b"one page")
        self.assertIsNone(backend.get("b", landing))
        self.assertEqual(backend.batch_get(["b", "a"],
                                           [bytearray(8), landing]),
                         [None, landing])

    def test_nothing_is_ever_raised_out_of_a_batch(self):
        pool = Pool("page_first")
        backend = self.backend(pool)  # There is no node.
        self.assertEqual(backend.batch_exists(["a"]), 0)
        self.assertEqual(backend.batch_set_v1(["a"], pool.indices([0])),
                         [False])
        self.assertEqual(backend.batch_get_v1(["a"], pool.indices([0])),
                         [False])
        # What is wrong is no exception either.
        self.assertEqual(backend.batch_get_v1(["a", "b"], pool.indices([0])),
                         [False, False])
        self.assertEqual(backend.batch_get_v1(["a"], None), [False])
        self.assertEqual(backend.batch_exists(["a", "a"]), 0)
        self.assertIsNone(backend.get("a", 7))
        self.assertFalse(backend.set("a", None))
        early = self.backend(None)
        self.assertEqual(early.batch_exists(["a"]), 0)
        self.assertEqual(early.batch_get_v1(["a"], [0]), [False])

    def test_models_of_several_pools_keep_nothing(self):
        self.node.start()
        pool = Pool("page_first")
        backend = self.opened(pool)
        backend.batch_set_v1(["a"], pool.indices([0]))
        other = types.SimpleNamespace(name="mamba", keys=["a", "b"])
        self.assertEqual(backend.batch_exists_v2(["a"], [other]).kv_hit_pages, 0)
        self.assertEqual(backend.batch_exists_v2(["a", "b"]).kv_hit_pages, 1)
        for batch in (backend.batch_get_v2, backend.batch_set_v2):
            self.assertEqual(batch([other]), {"mamba": [False, False]})

    def test_a_node_that_stops_or_dies_costs_misses(self):
        self.node.start()
        pool = Pool("page_first")
        short = {"get_deadline": 0.3, "set_deadline": 0.3,
                 "exists_deadline": 0.3}
        backend = self.opened(pool, extra=short)
        self.node.stop()
        self.assertEqual(backend.batch_exists(["first"]), 0)
        self.assertEqual(backend.batch_get_v1(["first"], pool.indices([1])),
                         [False])
        self.node.kill()
        self.assertEqual(backend.batch_set_v1(["b"], pool.indices([1])),
                         [False])
        self.node.start()
        until("it is used again", lambda: backend.batch_set_v1(
            ["b"], pool.indices([1])) == [True])

    def test_a_model_without_a_revision_is_refused_at_start(self):
        with self.assertRaisesRegex(ValueError, "weights_revision"):
            self.backend(Pool("page_first"), extra={"weights_revision": ""})

    def test_backends_come_and_go_in_one_process(self):
        self.node.start()
        pool = Pool("page_first")
        for _ in range(5):
            backend = self.opened(pool)
            backend.close()
            backend.close()
            self.assertEqual(backend.batch_exists(["first"]), 0)
        self.assertFalse(backend.clear())
        self.assertIsNone(backend.get_stats())


if __name__ == "__main__":
    unittest.main()
