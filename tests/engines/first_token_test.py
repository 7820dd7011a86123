"""Time to the first token of a long prefix, with a model whose prefill takes
seconds: computed without any cache, computed beside the cache, and found in it."""

import os
import unittest

import engine
from cluster import Cluster
from engine import Engine
from vllm_test import tier

PREFIX = 3072
#: Prefixes that are measured, each once.
FAMILIES = (31, 32, 33)


class FirstTokenTest(unittest.TestCase):
    def test_long_prefix(self):
        cluster = Cluster(dram_bytes="1GiB")
        self.addCleanup(cluster.remove)
        # Unlike the others it computes with all cores.
        shape = {"model": engine.options.large_model, "max_model_len": 4096,
                 "max_num_batched_tokens": 4096,
                 "env": {"OMP_NUM_THREADS": str(os.cpu_count())}}
        plain = self.first_tokens(Engine("large plain", **shape))
        first = Engine("large first", self.timed(cluster.sockets[0]), **shape)
        computed = self.first_tokens(first)
        # Its last stores end before it does.
        second = Engine("large second", self.timed(cluster.sockets[1]), **shape)
        second.ready().ask("timing")
        found, parts = [], []
        for family in FAMILIES:
            found += second.ask("long", family=family, prefix=PREFIX)
            parts += second.ask("timing")
        second.end()
        self.assertEqual([each["cached"] for each in found],
                         [PREFIX] * len(FAMILIES))
        for each in (computed, found):
            self.assertEqual(engine.tokens(each), engine.tokens(plain))
        self.report(plain, computed, found, parts)
        # What it is for: seconds of computing are saved.
        self.assertLess(median(found), median(plain))

    def timed(self, socket):
        return tier(socket, "TimedTier", "timed_tier", host_bytes=512 << 20)

    def first_tokens(self, one):
        try:
            # Whatever is made at the first request is made.
            one.ask("long", family=30, prefix=PREFIX)
            found = []
            for family in FAMILIES:
                found += one.ask("long", family=family, prefix=PREFIX)
            return found
        finally:
            one.end()

    def report(self, plain, computed, found, parts):
        share = {name: sum(each[name] for each in parts)
                 for name in ("lookup", "read", "copy")}
        total = sum(each["seconds"] for each in found)
        print(f"FirstTokenTest: {PREFIX} tokens, "
              f"{parts[0]['read_bytes'] / 2**20:.0f} MiB: {median(plain):.2f} s "
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
