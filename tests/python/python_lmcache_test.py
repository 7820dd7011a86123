"""LMCache's contract, by a bridge of our own that does as LMCache's does: two
threads submit under its lock, a third waits on the descriptor for half a second
at a time and drains; what ends under an id that nobody has is an error.
"""

import collections
import itertools
import select
import threading
import time
import unittest

from firnkv.lmcache import Client
from real_node import DEADLINE, PATIENCE, RealNode, content, until

CHUNK = 16384


def key(number, model="org/model"):
    """As LMCache makes them: model, rank, group, hash."""
    return f"{model}@01000100@0@{number:064x}"


class Bridge:
    """Of one native client, as a storage controller sees it."""

    def __init__(self, client):
        for name in ("event_fd", "submit_batch_get", "submit_batch_set",
                     "submit_batch_exists", "drain_completions", "close"):
            if not callable(getattr(client, name, None)):
                raise TypeError(f"no {name}")
        self.client = client
        self.lock = threading.Lock()
        self.ended = threading.Condition()
        self.results = {}
        self.unknown = []
        self.submitted = set()
        self.stopping = False
        self.poller = select.poll()
        self.poller.register(client.event_fd(), select.POLLIN)
        self.thread = threading.Thread(target=self.demultiplex)
        self.thread.start()

    def demultiplex(self):
        while not self.stopping:
            if self.poller.poll(500):
                self.drain()

    def drain(self):
        for number, ok, error, bools in self.client.drain_completions():
            with self.ended:
                if number in self.results:
                    self.unknown.append(number)
                self.results[number] = (ok, error, bools)
                self.ended.notify_all()

    def submit(self, name, *arguments):
        with self.lock:
            number = getattr(self.client, "submit_batch_" + name)(*arguments)
            self.submitted.add(number)
            return number

    def wait(self, number):
        with self.ended:
            if not self.ended.wait_for(lambda: number in self.results,
                                       PATIENCE):
                raise AssertionError(f"{number} has not ended")
            return self.results[number]

    def do(self, name, *arguments):
        return self.wait(self.submit(name, *arguments))

    def close(self):
        self.stopping = True
        self.thread.join()
        self.client.close()
        self.client.close()


class LmcacheTest(unittest.TestCase):
    def setUp(self):
        self.node = RealNode()
        self.addCleanup(self.node.remove)
        # One arena, as LMCache's first level is.
        self.arena = memoryview(bytearray(64 * CHUNK))

    def bridge(self, **options):
        options = {"get_deadline": DEADLINE, "set_deadline": DEADLINE,
                   "exists_deadline": DEADLINE, **options}
        bridge = Bridge(Client(socket_path=self.node.socket, **options))
        self.addCleanup(bridge.close)
        return bridge

    def place(self, number, length=CHUNK):
        return self.arena[number * CHUNK:number * CHUNK + length]

    def opened(self, bridge):
        """Once it stores something, its namespace is open."""
        until("it stores", lambda: bridge.do(
            "set", [key(10 ** 9)], [memoryview(b"first")])[0])
        return bridge

    def test_what_was_set_is_got(self):
        self.node.start()
        bridge = self.opened(self.bridge())
        keys = [key(i) for i in range(8)]
        for i in range(8):
            self.place(i)[:] = content(i, CHUNK)
        self.assertEqual(bridge.do("set", keys, [self.place(i)
                                                 for i in range(8)]),
                         (True, "", [True] * 8))

        wanted = keys + [key(99)]
        self.assertEqual(bridge.do("exists", wanted),
                         (True, "", [True] * 8 + [False]))
        ok, error, bools = bridge.do("get", wanted, [self.place(20 + i)
                                                     for i in range(9)])

        self.assertEqual((ok, error, bools), (True, "", [True] * 8 + [False]))
        for i in range(8):
            self.assertEqual(bytes(self.place(20 + i)), content(i, CHUNK))

    def test_a_chunk_that_is_there_is_set_again(self):
        self.node.start()
        bridge = self.opened(self.bridge())
        for _ in range(2):
            self.assertTrue(bridge.do("set", [key(1)], [self.place(0)])[0])

    def test_chunks_of_unequal_lengths_are_kept(self):
        self.node.start()
        bridge = self.opened(self.bridge())
        lengths = [1, 100, CHUNK - 1, CHUNK]
        keys = [key(i) for i in range(4)]
        for i, length in enumerate(lengths):
            self.place(i)[:] = content(i, CHUNK)
            del length
        self.assertTrue(bridge.do("set", keys, [
            self.place(i, lengths[i]) for i in range(4)])[0])

        _, _, bools = bridge.do("get", keys, [
            self.place(10 + i, lengths[i]) for i in range(4)])

        self.assertEqual(bools, [True] * 4)
        for i, length in enumerate(lengths):
            self.assertEqual(bytes(self.place(10 + i, length)),
                             content(i, CHUNK)[:length])

    def test_a_chunk_of_another_length_is_no_hit(self):
        self.node.start()
        bridge = self.opened(self.bridge())
        bridge.do("set", [key(1), key(2)], [self.place(0), self.place(1)])
        _, _, bools = bridge.do("get", [key(1), key(2)],
                                [self.place(2, 10), self.place(3)])
        self.assertEqual(bools, [False, True])

    def test_what_was_deleted_is_gone(self):
        self.node.start()
        bridge = self.opened(self.bridge())
        bridge.do("set", [key(1)], [self.place(0)])
        self.assertEqual(bridge.do("delete", [key(1), key(2)]),
                         (True, "", [True, False]))
        self.assertEqual(bridge.do("exists", [key(1)])[2], [False])

    def test_servers_with_other_element_types_share_nothing(self):
        self.node.start()
        one = self.opened(self.bridge(kv_dtype="bf16"))
        other = self.opened(self.bridge(kv_dtype="fp16"))
        one.do("set", [key(1)], [self.place(0)])
        self.assertEqual(other.do("exists", [key(1)])[2], [False])
        self.assertEqual(one.do("exists", [key(1)])[2], [True])

    def test_input_that_does_not_fit_is_refused(self):
        self.node.start()
        bridge = self.opened(self.bridge())
        with self.assertRaises(ValueError):
            bridge.submit("get", [key(1), key(2)], [self.place(0)])
        with self.assertRaises(BufferError):
            bridge.submit("get", [key(1)], [memoryview(b"read-only")])
        with self.assertRaisesRegex(TypeError, "no_such_parameter"):
            Client(socket_path=self.node.socket, no_such_parameter=1)
        # The same key twice: nothing of the batch, and a word.
        ok, error, bools = bridge.do("exists", [key(1), key(1)])
        self.assertEqual((ok, bools), (False, [False, False]))
        self.assertIn("twice", error)

    def test_without_a_node_everything_is_a_miss(self):
        bridge = self.bridge()
        for name, buffers, bools in (("exists", [], [False]),
                                     ("get", [[self.place(0)]], [False]),
                                     ("set", [[self.place(0)]], [False])):
            ok, error, told = bridge.do(name, [key(1)], *buffers)
            self.assertEqual((ok, told), (False, bools))
            self.assertIn("not open yet", error)
        # It comes, and is used without anybody asking for it.
        self.node.start()
        self.opened(bridge)

    def test_a_stopped_node_costs_a_deadline(self):
        self.node.start()
        bridge = self.opened(self.bridge(get_deadline=0.3,
                                         exists_deadline=0.3,
                                         set_deadline=0.3))
        self.node.stop()
        try:
            self.assertEqual(bridge.do("exists", [key(1)])[2], [False])
            self.assertEqual(bridge.do("get", [key(1)], [self.place(0)])[2],
                             [False])
            self.assertFalse(bridge.do("set", [key(1)], [self.place(0)])[0])
        finally:
            self.node.go_on()
        self.opened(bridge)

    def load(self, bridge, counts, stop):
        """Of two threads: sets and gets of chunks with a content of their own.
        Counts what was wrong."""
        numbers = itertools.count()

        def work(thread):
            while not stop.is_set():
                number = next(numbers)
                first, second = self.place(2 * thread), self.place(
                    2 * thread + 1)
                first[:] = content(number, CHUNK)
                name = [key(number)]
                stored = bridge.do("set", name, [first])[0]
                got = bridge.do("get", name, [second])[2]
                counts["turns"] += 1
                if got == [True] and bytes(second) != content(number, CHUNK):
                    counts["wrong"] += 1
                if stored and got == [True]:
                    counts["hits"] += 1
        threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
        for thread in threads:
            thread.start()
        return threads

    def test_a_node_killed_under_load_costs_misses_only(self):
        self.node.start()
        bridge = self.opened(self.bridge(get_deadline=0.5, set_deadline=0.5))
        counts, stop = collections.Counter(), threading.Event()
        threads = self.load(bridge, counts, stop)
        try:
            for _ in range(2):
                hits = counts["hits"]
                until("hits", lambda: counts["hits"] > hits + 50)
                self.node.kill()
                turns = counts["turns"]
                until("misses", lambda: counts["turns"] > turns + 10)
                self.node.start()
            hits = counts["hits"]
            until("hits again", lambda: counts["hits"] > hits + 50)
        finally:
            stop.set()
            for thread in threads:
                thread.join(PATIENCE)
        self.assertEqual(counts["wrong"], 0)
        self.assertEqual(bridge.unknown, [])
        self.assertEqual(bridge.submitted - set(bridge.results), set())

    def test_what_is_outstanding_at_close_ends_once(self):
        self.node.start()
        client = Client(socket_path=self.node.socket,
                        exists_deadline=DEADLINE)
        numbers = [client.submit_batch_exists([key(i)]) for i in range(100)]
        client.close()
        drained = client.drain_completions()
        self.assertEqual(sorted(one[0] for one in drained), sorted(numbers))
        self.assertEqual(client.drain_completions(), [])

    def test_too_many_submits_end_as_misses(self):
        """Rather than as an exception in a thread of LMCache's."""
        self.node.start()
        client = Client(socket_path=self.node.socket,
                        exists_deadline=DEADLINE)
        self.addCleanup(client.close)
        numbers = {client.submit_batch_exists([key(i)]) for i in range(4100)}
        self.assertEqual(len(numbers), 4100)
        drained = {}
        end = time.monotonic() + PATIENCE
        while len(drained) < 4100 and time.monotonic() < end:
            select.select([client.event_fd()], [], [], 0.5)
            drained.update({one[0]: one[1:]
                            for one in client.drain_completions()})
        self.assertEqual(set(drained), numbers)
        refused = [one for one in drained.values() if "4096" in one[1]]
        self.assertEqual(refused, [(False, refused[0][1], [False])] * 4)


if __name__ == "__main__":
    unittest.main()
