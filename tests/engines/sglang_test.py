"""SGLang's real cache controller and storage base with our backend: pages that
one engine has written another one, on the other node, fetches bit by bit."""

import json
import os
import tempfile
import unittest

import engine
from cluster import Cluster

PAGES = 300
LAYOUTS = (("page_first", True), ("layer_first", True),
           # Without interface_v1: SGLang hands over copies.
           ("page_first", False))


class SglangTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster()
        cls.addClassCleanup(cls.cluster.remove)

    def engine(self, name, socket, write):
        """One of SGLang's processes: each layout's pages, and some with no node
        there."""
        out = os.path.join(tempfile.mkdtemp(dir=engine.options.logs), "found")
        tasks = [{"layout": layout, "zero_copy": zero_copy, "seed": seed,
                  "pages": PAGES, "write": write, "extra": self.extra(socket)}
                 for seed, (layout, zero_copy) in enumerate(LAYOUTS)]
        tasks.append({**tasks[0], "extra": self.extra("/nonexistent/socket")})
        engine.run(f"sglang {name}", engine.options.sglang, "sglang_cache.py",
                   out, json.dumps(tasks))
        with open(out, encoding="utf-8") as file:
            return json.load(file)

    def extra(self, socket):
        return {"socket_path": socket, "weights_revision": "of the test",
                "get_deadline": 20.0, "set_deadline": 20.0,
                "exists_deadline": 20.0}

    def test_pages_are_fetched_bit_by_bit(self):
        written = self.engine("writes", self.cluster.sockets[0], True)
        fetched = self.engine("fetches", self.cluster.sockets[1], False)
        for (layout, zero_copy), one, other in zip(LAYOUTS, written, fetched):
            print(f"SglangTest: {layout}, {'in place' if zero_copy else 'copied'}"
                  f": {one['written_pages']} of {PAGES} pages written on one "
                  f"node; on the other {other['hit_pages']} found, "
                  f"{other['fetched_pages']} fetched, {other['equal_pages']} "
                  "equal bit by bit", flush=True)
        for one, other in zip(written[:-1], fetched[:-1]):
            self.assertEqual(one["written_pages"], PAGES)
            for count in ("hit_pages", "fetched_pages", "equal_pages"):
                self.assertEqual(other[count], PAGES)
        # Without a node nothing is kept, and nothing is broken.
        self.assertEqual(written[-1]["written_pages"], 0)
        self.assertEqual(fetched[-1]["hit_pages"], 0)
        for each in (*written, *fetched):
            self.assertTrue(each["threads_alive"])
