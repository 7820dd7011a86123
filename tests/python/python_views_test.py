"""Blocks can be looked at where they lie; what was seen counts only if closing
says so, and nothing can be looked at afterwards.
"""

import unittest

import firnkv
from firnkv import Outcome
from real_node import DEADLINE, NodeTest, content

SIZE = 5000


class ViewsTest(NodeTest):
    def written(self, count=4):
        namespace = self.open()
        names = [str(i) for i in range(count)]
        result = namespace.write(names, [content(i, SIZE)
                                         for i in range(count)],
                                 deadline=DEADLINE)
        self.assertEqual(result.stored, count)
        return namespace, names

    def test_bytes_are_seen_and_count(self):
        namespace, names = self.written()
        with namespace.views(names, deadline=DEADLINE) as views:
            self.assertEqual(views.outcomes, [Outcome.HIT] * 4)
            self.assertEqual((len(views), views.hits, views.nbytes),
                             (4, 4, 4 * SIZE))
            for i in range(4):
                self.assertEqual(bytes(views[i]), content(i, SIZE))
            self.assertGreater(views.good_for, 0)
        self.assertEqual(views.verdicts, [Outcome.HIT] * 4)
        self.assertTrue(views.closed)

    def test_a_view_cannot_be_written_to(self):
        namespace, names = self.written(1)
        with namespace.views(names, deadline=DEADLINE) as views:
            self.assertTrue(views[0].readonly)
            with self.assertRaises(TypeError):
                views[0][0] = 1

    def test_a_block_that_is_not_there_has_no_view(self):
        namespace, names = self.written(1)
        with namespace.views(names + ["other"], deadline=DEADLINE) as views:
            self.assertEqual(views.outcomes, [Outcome.HIT, Outcome.MISS])
            with self.assertRaisesRegex(LookupError, "block 1 is miss"):
                views[1]
            with self.assertRaises(IndexError):
                views[2]
        self.assertEqual(views.verdicts, [Outcome.HIT, Outcome.MISS])

    def test_a_closed_view_cannot_be_looked_at(self):
        namespace, names = self.written(1)
        views = namespace.views(names, deadline=DEADLINE)
        seen = views[0]
        views.close()
        with self.assertRaises(ValueError):
            seen[0]
        with self.assertRaisesRegex(ValueError, "closed"):
            views[0]

    def test_views_that_are_used_are_not_closed(self):
        """Rule P9: what somebody looks at stays mapped."""
        namespace, names = self.written(2)
        views = namespace.views(names, deadline=DEADLINE)
        further = memoryview(views[0])
        with self.assertRaisesRegex(BufferError, "1 pieces .* still used"):
            views.close()
        self.assertEqual(bytes(further), content(0, SIZE))
        further.release()
        self.assertEqual(views.close(), [Outcome.HIT] * 2)

    def test_a_look_keeps_its_batch(self):
        namespace, names = self.written(1)
        seen = namespace.views(names, deadline=DEADLINE)[0]
        self.assertEqual(bytes(seen), content(0, SIZE))

    def test_what_outlives_its_age_does_not_count(self):
        namespace, names = self.written(1)
        views = namespace.views(names, deadline=DEADLINE, max_age=0.000001)
        self.assertEqual(views.close(), [Outcome.TIMED_OUT])

    def test_views_of_a_client_that_was_closed_do_not_count(self):
        namespace, names = self.written(1)
        client = firnkv.Client(self.node.socket)
        views = self.open(client).views(names, deadline=DEADLINE)
        self.assertEqual(bytes(views[0]), content(0, SIZE))
        client.close()
        self.assertEqual(views.close(), [Outcome.CANCELLED])

    def test_a_session_that_may_not_map_says_so(self):
        namespace, names = self.written(1)
        with firnkv.Client(self.node.socket, map_local_blocks=False) as client:
            views = self.open(client).views(names, deadline=DEADLINE)
            self.assertEqual(views.outcomes, [Outcome.UNAVAILABLE])
            self.assertNotEqual(views.why, "")
            self.assertFalse(views.invalid)

    def test_a_request_out_of_its_bounds_is_refused(self):
        namespace, names = self.written(1)
        with self.assertRaises(firnkv.InvalidArgument):
            namespace.views(names, deadline=DEADLINE, max_age=27)


if __name__ == "__main__":
    unittest.main()
