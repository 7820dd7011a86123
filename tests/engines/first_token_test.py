"""Time to the first token of a long prefix, with a model whose prefill takes
seconds: computed without any cache, computed beside the cache, and found in it."""

import os
import time
import unittest

import engine
from cluster import Cluster
from engine import Engine
from vllm_test import tier

BLOCK = 32  # As vllm_engine.py has it.
#: Of tiny_model.py's large one: layers, K and V, heads, dimensions, bf16.
BLOCK_BYTES = BLOCK * 16 * 2 * 4 * 64 * 2
PREFIX = 96 * BLOCK
#: Prefixes that are measured, each once.
FAMILIES = (31, 32, 33)
#: And what each engine computes before.
WARM, WARM_BLOCKS = 40, 2


class FirstTokenTest(unittest.TestCase):
    def test_long_prefix(self):
        cluster = Cluster(dram_bytes="1GiB")
        self.addCleanup(cluster.remove)
        # Unlike the others it computes with all cores.
        shape = {"model": engine.options.large_model, "max_model_len": 4096,
                 "max_num_batched_tokens": 4096,
                 "env": {"OMP_NUM_THREADS": str(os.cpu_count())}}
        # All start at once; only one at a time computes.
        engines = [Engine(f"large {name}", transfer, **shape)
                   for name, transfer in (
                       ("plain", None),
                       ("first", self.timed(cluster.sockets[0])),
                       ("second", self.timed(cluster.sockets[1])))]
        for number, each in enumerate(engines):
            self.addCleanup(each.end)
            # Whatever is made at the first request is made.
            each.ask("long", family=WARM + number, prefix=WARM_BLOCKS * BLOCK)
        plain, computed, found = [], [], []
        parts = []
        for family in FAMILIES:
            plain += engines[0].ask("long", family=family, prefix=PREFIX)
            computed += engines[1].ask("long", family=family, prefix=PREFIX)
            self.stored(cluster, engines[1], len(computed))
            engines[2].ask("timing")
            found += engines[2].ask("long", family=family, prefix=PREFIX)
            parts += engines[2].ask("timing")
        self.assertEqual([each["cached"] for each in found],
                         [PREFIX] * len(FAMILIES))
        for each in (computed, found):
            self.assertEqual(engine.tokens(each), engine.tokens(plain))
        self.report(plain, computed, found, parts)
        # What it is for: seconds of computing are saved.
        self.assertLess(median(found), median(plain))

    def stored(self, cluster, first, families):
        """Stores go on with the engine's steps."""
        until = time.monotonic() + 600
        blocks = families * PREFIX // BLOCK + WARM_BLOCKS
        while (cluster.metric("firnkv_node_dram_resident_bytes",
                              cluster.nodes[:1]) < blocks * BLOCK_BYTES):
            self.assertLess(time.monotonic(), until, "not stored")
            first.ask("long", family=WARM + 1, prefix=WARM_BLOCKS * BLOCK)

    def timed(self, socket):
        return tier(socket, "TimedTier", "timed_tier", host_bytes=512 << 20)

    def report(self, plain, computed, found, parts):
        share = {name: sum(each[name] for each in parts)
                 for name in ("lookup", "read", "copy")}
        total = sum(each["seconds"] for each in found)
        print(f"FirstTokenTest: {PREFIX} tokens, "
              f"{parts[0]['copied_bytes'] / 2**20:.0f} MiB: {median(plain):.2f} s "
              f"without a cache, {median(computed):.2f} s computed beside it, "
              f"{median(found):.2f} s found, so "
              f"{median(plain) / median(found):.1f} times as fast; of that "
              + ", ".join(f"{name} {100 * part / total:.0f} %"
                          for name, part in share.items())
              + f", the rest {100 * (1 - sum(share.values()) / total):.0f} %",
              flush=True)


def median(found):
    seconds = sorted(each["seconds"] for each in found)
    return seconds[len(seconds) // 2]
