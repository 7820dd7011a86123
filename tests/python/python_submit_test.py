"""Calls are submitted and drained by one descriptor, or awaited; none keeps the
GIL, none ends twice, and a forked process does nothing.
"""

import asyncio
import os
import select
import subprocess
import sys
import threading
import unittest

import firnkv
import firnkv.aio
from firnkv import Outcome
from real_node import DEADLINE, PATIENCE, NodeTest, content, until

SIZE = 4096


class SubmitTest(NodeTest):
    def setUp(self):
        # Of its own: a drain gets all that a Client has finished.
        self.own = firnkv.Client(self.node.socket)
        self.addCleanup(self.own.close)
        self.namespace = self.open(self.own)

    def drained(self, count):
        """By the descriptor, until so many have come; by their ids."""
        fd = self.own.completion_fd()
        results = {}
        while len(results) < count:
            ready, _, _ = select.select([fd], [], [], PATIENCE)
            self.assertEqual(ready, [fd])
            some = self.own.drain()
            self.assertGreater(len(some), 0)
            results.update(some)
        return results

    def test_every_call_ends_once_under_its_id(self):
        write = self.namespace.submit_write(["a"], [b"a" * SIZE],
                                            deadline=DEADLINE)
        results = self.drained(1)
        landing = bytearray(SIZE)
        read = self.namespace.submit_read(["a"], landing, deadline=DEADLINE)
        exists = self.namespace.submit_exists(["a", "b"], deadline=DEADLINE)
        views = self.namespace.submit_views(["a"], deadline=DEADLINE)
        results.update(self.drained(3))
        remove = self.namespace.submit_remove(["a"], deadline=DEADLINE)
        results.update(self.drained(1))

        self.assertEqual(len({write, read, exists, views, remove}), 5)
        self.assertEqual(set(results), {write, read, exists, views, remove})
        self.assertEqual(results[write].outcomes, [Outcome.STORED])
        self.assertEqual(results[read].outcomes, [Outcome.HIT])
        self.assertEqual(bytes(landing), b"a" * SIZE)
        self.assertEqual(results[exists].outcomes,
                         [Outcome.HIT, Outcome.MISS])
        self.assertEqual(bytes(results[views][0]), b"a" * SIZE)
        self.assertEqual(results[remove].removed, 1)
        self.assertEqual(self.own.drain(), [])

    def test_the_descriptor_is_quiet_when_all_is_drained(self):
        fd = self.own.completion_fd()
        self.namespace.submit_exists(["a"], deadline=DEADLINE)
        self.drained(1)
        self.assertEqual(select.select([fd], [], [], 0)[0], [])

    def test_a_descriptor_that_is_asked_for_late_is_readable(self):
        self.namespace.submit_write(["a"], [b"a"], deadline=DEADLINE)
        until("it has ended", lambda: self.namespace.exists(
            ["a"], deadline=DEADLINE).hits == 1)
        self.assertEqual(len(self.drained(1)), 1)

    def test_a_submitted_request_that_is_wrong_says_so(self):
        number = self.namespace.submit_exists(["a", "a"], deadline=DEADLINE)
        result = self.drained(1)[number]
        self.assertTrue(result.invalid)
        self.assertIn("stands twice", result.why)
        self.assertEqual(result.outcomes, [Outcome.SKIPPED] * 2)

    def test_memory_is_kept_until_its_call_was_drained(self):
        landing = bytearray(SIZE)
        self.namespace.submit_read(["a"], landing, deadline=DEADLINE)
        with self.assertRaises(BufferError):
            landing.append(1)
        self.drained(1)
        landing.append(1)

    def test_what_is_outstanding_at_close_ends_and_can_be_drained(self):
        count = 200
        ids = {self.namespace.submit_exists([f"{i}"], deadline=DEADLINE)
               for i in range(count)}
        self.own.close()
        drained = dict(self.own.drain())
        self.assertEqual(set(drained), ids)
        for result in drained.values():
            self.assertIn(result.outcomes[0],
                          (Outcome.MISS, Outcome.CANCELLED))

    def test_too_many_that_are_not_drained_are_refused(self):
        for _ in range(4096):
            self.namespace.submit_exists(["a"], deadline=DEADLINE)
        with self.assertRaisesRegex(firnkv.Exhausted, "4096"):
            self.namespace.submit_exists(["a"], deadline=DEADLINE)
        self.drained(4096)
        self.namespace.submit_exists(["a"], deadline=DEADLINE)
        self.drained(1)

    def test_threads_submit_and_drain_at_a_time(self):
        per_thread, threads = 300, 4
        ids, results = [], []

        def submit(thread):
            for i in range(per_thread):
                ids.append(self.namespace.submit_exists(
                    [f"{thread}.{i}"], deadline=DEADLINE))

        def drain():
            while len(results) < per_thread * threads:
                select.select([fd], [], [], 0.1)
                results.extend(number for number, _ in self.own.drain(7))

        fd = self.own.completion_fd()
        running = [threading.Thread(target=submit, args=(i,))
                   for i in range(threads)]
        running.append(threading.Thread(target=drain))
        for thread in running:
            thread.start()
        for thread in running:
            thread.join(PATIENCE)
        self.assertEqual(sorted(results), sorted(ids))

    def test_a_call_that_waits_lets_other_threads_run(self):
        """The GIL: a thread counts while another one waits for a node that is
        stopped."""
        counted, waiting = [0], threading.Event()

        def wait():
            waiting.set()
            results.append(self.namespace.exists(["a"], deadline=1.0))

        results = []
        self.node.stop()
        try:
            thread = threading.Thread(target=wait)
            thread.start()
            waiting.wait()
            while thread.is_alive():
                counted[0] += 1
        finally:
            self.node.go_on()
        thread.join()
        self.assertFalse(results[0].outcomes[0].good)
        # A thread that had the GIL for its second would have left a handful.
        self.assertGreater(counted[0], 1000)

    def test_a_process_may_end_while_a_thread_of_it_waits(self):
        """And with a Client that nobody has closed."""
        program = (
            "import sys, threading, time, firnkv\n"
            "contract = firnkv.StateContract.opaque('test', block_tokens=16)\n"
            "client = firnkv.Client(sys.argv[1])\n"
            "namespace = client.open_namespace(sys.argv[2], contract,"
            " chained=False, deadline=30)\n"
            "views = namespace.views(['a'], deadline=30)\n"
            "namespace.submit_exists(['a'], deadline=30)\n"
            "print('ready', flush=True)\n"
            "sys.stdin.readline()\n"
            "def wait():\n"
            "    while True: namespace.exists(['a'], deadline=0.05)\n"
            "for _ in range(4):\n"
            "    threading.Thread(target=wait, daemon=True).start()\n"
            "time.sleep(0.1)\n")
        process = subprocess.Popen(
            [sys.executable, "-c", program, self.node.socket,
             self.namespace.name], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True)
        with process:
            self.assertEqual(process.stdout.readline(), "ready\n")
            self.node.stop()
            try:
                process.stdin.write("go\n")
                process.stdin.close()
                self.assertEqual(process.wait(PATIENCE), 0)
            finally:
                self.node.go_on()
                process.kill()

    def test_calls_can_be_awaited(self):
        async def use():
            loop_client = firnkv.Client(self.node.socket)
            async with firnkv.aio.AsyncClient(loop_client) as client:
                namespace = self.open(loop_client)
                landing = bytearray(2 * SIZE)
                stored = await client.write(
                    namespace, ["a", "b"], [content(1, SIZE),
                                            content(2, SIZE)],
                    deadline=DEADLINE)
                some = await asyncio.gather(
                    client.read(namespace, ["a", "b"], landing,
                                deadline=DEADLINE),
                    client.exists(namespace, ["a", "c"], deadline=DEADLINE),
                    client.views(namespace, ["b"], deadline=DEADLINE))
                with self.assertRaisesRegex(firnkv.InvalidArgument, "twice"):
                    await client.exists(namespace, ["a", "a"],
                                        deadline=DEADLINE)
                with some[2] as views:
                    self.assertEqual(bytes(views[0]), content(2, SIZE))
                removed = await client.remove(namespace, ["a"],
                                              deadline=DEADLINE)
            return stored, some, removed, bytes(landing)

        stored, (read, exists, _), removed, landing = asyncio.run(use())
        self.assertEqual(stored.stored, 2)
        self.assertEqual(read.hits, 2)
        self.assertEqual(landing, content(1, SIZE) + content(2, SIZE))
        self.assertEqual(exists.outcomes, [Outcome.HIT, Outcome.MISS])
        self.assertEqual(removed.removed, 1)

    def test_a_forked_process_does_nothing(self):
        """Rule S6."""
        self.namespace.write(["a"], [b"a" * SIZE], deadline=DEADLINE)
        shared = self.own.allocate_shared(SIZE)
        views = self.namespace.views(["a"], deadline=DEADLINE)
        self.own.completion_fd()

        failed = in_a_child(lambda: self.forked(shared, views))

        self.assertEqual(failed, b"")
        # The parent goes on as if nothing had been.
        self.assertEqual(bytes(views[0]), b"a" * SIZE)
        self.assertEqual(views.close(), [Outcome.HIT])
        landing = bytearray(SIZE)
        self.assertEqual(self.namespace.read(["a"], landing,
                                             deadline=DEADLINE).hits, 1)

    def forked(self, shared, views):
        unavailable = [Outcome.UNAVAILABLE]
        for call in (
                lambda: self.namespace.read(["a"], bytearray(SIZE),
                                            deadline=DEADLINE),
                lambda: self.namespace.write(["b"], shared,
                                             deadline=DEADLINE),
                lambda: self.namespace.exists(["a"], deadline=DEADLINE),
                lambda: self.namespace.remove(["a"], deadline=DEADLINE),
                lambda: self.namespace.views(["a"], deadline=DEADLINE)):
            result = call()
            self.assertEqual(result.outcomes, unavailable)
            self.assertIn("fork", result.why)
        for call in (
                lambda: self.namespace.submit_exists(["a"], deadline=DEADLINE),
                lambda: self.own.allocate_shared(SIZE),
                lambda: self.own.completion_fd(),
                lambda: self.open(self.own)):
            with self.assertRaisesRegex(firnkv.Unavailable, "fork"):
                call()
        self.assertEqual(views.close(), unavailable)
        self.assertEqual(self.own.drain(), [])
        self.assertEqual(self.own.about(), {})
        self.assertTrue(self.own.forked)
        self.own.close()
        # Its destructors too.
        self.namespace = self.own = None
        with self.assertRaisesRegex(firnkv.Refused, "spawn"):
            firnkv.Client(self.node.socket)

    def test_a_fork_before_the_first_client_may_have_one(self):
        self.namespace.write(["a"], [b"a" * SIZE], deadline=DEADLINE)
        program = (
            "import os, sys, firnkv\n"
            "if os.fork() != 0: sys.exit(os.waitstatus_to_exitcode("
            "os.wait()[1]))\n"
            "contract = firnkv.StateContract.opaque('test', block_tokens=16)\n"
            "client = firnkv.Client(sys.argv[1])\n"
            "namespace = client.open_namespace(sys.argv[2], contract,"
            " chained=False, deadline=30)\n"
            "hits = namespace.exists(['a'], deadline=30).hits\n"
            "client.close()\n"
            "sys.exit(0 if hits == 1 else 1)\n")
        done = subprocess.run([sys.executable, "-c", program,
                               self.node.socket, self.namespace.name],
                              timeout=PATIENCE, check=False)
        self.assertEqual(done.returncode, 0)


def in_a_child(claims):
    """Runs `claims` in a fork; what they raised, as text."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        said = b""
        try:
            claims()
        except BaseException as error:  # pylint: disable=broad-except
            said = repr(error).encode()
        os.write(writer, said)
        sys.stdout.flush()
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        said = pipe.read()
    _, status = os.waitpid(child, 0)
    return said or (b"" if status == 0 else b"status %d" % status)


if __name__ == "__main__":
    unittest.main()
