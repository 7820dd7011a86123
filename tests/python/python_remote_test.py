"""Without a local node: blocks go to and come from the nodes that the catalog
names, by a token that can be replaced.
"""

import os
import subprocess
import unittest

import firnkv
from firnkv import Outcome
from real_node import DEADLINE, PROGRAMS, NodeTest, content

SIZE = 100_000


class RemoteTest(NodeTest):
    def token(self):
        done = subprocess.run(
            [os.path.join(PROGRAMS, "firnkv"), "--catalog", self.catalog(),
             "--secret-file",
             os.path.join(self.node.folder, "data", "cluster.secret"),
             "tenant", "token", "default"],
            capture_output=True, text=True, check=True)
        return done.stdout.split()[-1]

    def catalog(self):
        return self.client.about()["catalog_address"]

    def remote(self, token):
        client = firnkv.Client("", catalog_address=self.catalog(), token=token)
        self.addCleanup(client.close)
        return client

    def test_blocks_go_and_come_over_the_network(self):
        client = self.remote(self.token())
        namespace = self.open(client)
        names = [f"block {i}" for i in range(4)]
        written = namespace.write(
            names, [content(i, SIZE) for i in range(4)], deadline=DEADLINE,
            wait_for="published")
        self.assertEqual(written.outcomes, [Outcome.STORED] * 4)

        landing = bytearray(4 * SIZE)
        read = namespace.read(names, landing, deadline=DEADLINE)

        self.assertEqual(read.hits, 4, read.outcomes)
        self.assertEqual((read.bytes_mapped, read.bytes_remote),
                         (0, 4 * SIZE))
        self.assertEqual(bytes(landing),
                         b"".join(content(i, SIZE) for i in range(4)))
        self.assertEqual(
            namespace.exists(names + ["x"], deadline=DEADLINE).lengths,
            [SIZE] * 4 + [0])
        # The node's own sessions have them too.
        self.assertEqual(self.open().read(names, landing,
                                          deadline=DEADLINE).hits, 4)
        self.assertFalse(client.about()["session"])

    def test_views_are_the_local_nodes_only(self):
        client = self.remote(self.token())
        views = self.open(client).views(["a"], deadline=DEADLINE)
        self.assertFalse(views.outcomes[0].good)

    def test_another_clusters_token_is_not_served(self):
        token = self.token()
        wrong = token[:-2] + ("00" if token[-2:] != "00" else "11")
        client = self.remote(wrong)
        with self.assertRaises(firnkv.Error):
            self.open(client)

    def test_a_token_can_be_replaced(self):
        token = self.token()
        wrong = token[:-2] + ("00" if token[-2:] != "00" else "11")
        client = self.remote(wrong)
        with self.assertRaises(firnkv.Error):
            self.open(client)
        client.set_token(token)
        self.assertTrue(self.open(client).opened)
        with self.assertRaisesRegex(ValueError, "hex"):
            client.set_token("no token")

    def test_a_client_without_node_and_token_is_refused(self):
        with self.assertRaisesRegex(firnkv.InvalidArgument, "token"):
            firnkv.Client("", catalog_address=self.catalog())
        with self.assertRaisesRegex(firnkv.InvalidArgument, "socket_path"):
            firnkv.Client("")


if __name__ == "__main__":
    unittest.main()
