"""A node that is stopped, killed or not there yet costs misses and at most a
deadline: nothing is raised but by what has no outcomes.
"""

import unittest

import firnkv
from firnkv import Outcome
from real_node import CONTRACT, DEADLINE, RealNode, content, until

SIZE = 4096
SHORT = 0.3


class AwayTest(unittest.TestCase):
    def setUp(self):
        self.node = RealNode()
        self.addCleanup(self.node.remove)

    def open(self, client, **options):
        return client.open_namespace("away", CONTRACT, chained=False,
                                     deadline=DEADLINE, **options)

    def bad(self, result):
        return not any(outcome.good for outcome in result.outcomes)

    def test_without_a_node_a_client_says_so(self):
        with self.assertRaisesRegex(firnkv.Unavailable, "local node"):
            firnkv.Client(self.node.socket, connect_timeout=SHORT)

    def test_a_client_may_start_before_its_node(self):
        with firnkv.Client(self.node.socket, wait_for_node=False) as client:
            namespace = self.open(client, lazy=True)
            self.assertFalse(namespace.opened)
            result = namespace.read(["a"], bytearray(SIZE), deadline=SHORT)
            self.assertEqual(result.outcomes, [Outcome.UNAVAILABLE])
            self.assertIn("not open yet", result.why)
            number = namespace.submit_exists(["a"], deadline=SHORT)
            drained = until("its end", client.drain)
            self.assertEqual(drained[0][0], number)
            self.assertEqual(drained[0][1].outcomes, [Outcome.UNAVAILABLE])

            self.node.start()
            until("it stores", lambda: namespace.write(
                ["a"], [content(1, SIZE)], deadline=DEADLINE).stored == 1)

            landing = bytearray(SIZE)
            self.assertEqual(
                namespace.read(["a"], landing, deadline=DEADLINE).hits, 1)
            self.assertEqual(bytes(landing), content(1, SIZE))
            self.assertTrue(namespace.opened)

    def test_a_stopped_node_costs_the_deadline(self):
        self.node.start()
        with firnkv.Client(self.node.socket) as client:
            namespace = self.open(client)
            namespace.write(["a"], [content(1, SIZE)], deadline=DEADLINE)
            self.node.stop()
            try:
                landing = bytearray(SIZE)
                read = namespace.read(["a"], landing, deadline=SHORT)
                write = namespace.write(["b"], [landing], deadline=SHORT)
                exists = namespace.exists(["a"], deadline=SHORT)
                views = namespace.views(["a"], deadline=SHORT)
                remove = namespace.remove(["a"], deadline=SHORT)
                with self.assertRaises(firnkv.Error):
                    client.open_namespace("other", CONTRACT, deadline=SHORT)
            finally:
                self.node.go_on()
            for result in (read, write, exists, views, remove):
                self.assertTrue(self.bad(result), result.outcomes)
            until("it is back", lambda: namespace.exists(
                ["c"], deadline=DEADLINE).outcomes == [Outcome.MISS])

    def test_a_killed_node_costs_misses_and_comes_back_empty(self):
        self.node.start()
        with firnkv.Client(self.node.socket) as client:
            namespace = self.open(client)
            namespace.write(["a"], [content(1, SIZE)], deadline=DEADLINE)
            self.node.kill()
            for _ in range(20):
                self.assertTrue(self.bad(namespace.read(
                    ["a"], bytearray(SIZE), deadline=SHORT)))
            self.node.start()
            until("it is asked again", lambda: namespace.read(
                ["a"], bytearray(SIZE),
                deadline=DEADLINE).outcomes == [Outcome.MISS])
            until("it stores", lambda: namespace.write(
                ["a"], [content(2, SIZE)], deadline=DEADLINE).stored == 1)

    def test_views_of_a_node_that_was_killed_do_not_count(self):
        self.node.start()
        with firnkv.Client(self.node.socket) as client:
            namespace = self.open(client)
            namespace.write(["a"], [content(1, SIZE)], deadline=DEADLINE)
            views = namespace.views(["a"], deadline=DEADLINE)
            self.node.kill()
            # Still mapped: nothing faults.
            self.assertEqual(bytes(views[0]), content(1, SIZE))
            until("the session's end is known",
                  lambda: client.stats()["sessions_lost"] == 1)
            self.assertEqual(views.close(), [Outcome.UNAVAILABLE])


if __name__ == "__main__":
    unittest.main()
