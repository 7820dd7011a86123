"""A catalog and two nodes, each a process of its own, so that each can be
stopped or killed by itself."""

import os
import re
import urllib.request

from real_node import PROGRAMS, RealNode, until


class RealCatalog(RealNode):
    """firnkv-catalog in a process of its own."""

    def __init__(self):
        super().__init__()
        self.secret = os.path.join(self.folder, "data", "cluster.secret")

    def command(self):
        return [os.path.join(PROGRAMS, "firnkv-catalog"),
                "--data-dir", os.path.join(self.folder, "data"),
                "--catalog-listen", "127.0.0.1:0",
                "--http-address", "127.0.0.1:0"]

    @property
    def address(self):
        return value_of(self, "grpc")


def value_of(daemon, word):
    """Behind `word` in what a daemon says once it is ready."""
    def said():
        lines = (line.split() for line in daemon.said().splitlines())
        return next((words[1] for words in lines if words[:1] == [word]), None)
    return until(f"{word} is said", said)


class Cluster:
    def __init__(self, dram_bytes="256MiB"):
        self.catalog = RealCatalog()
        self.nodes = []
        try:
            self.catalog.start()
            for _ in range(2):
                self.nodes.append(RealNode(
                    "--node-catalog", self.catalog.address,
                    "--cluster-secret-file", self.catalog.secret,
                    dram_bytes=dram_bytes))
                self.nodes[-1].start()
        except BaseException:
            self.remove()
            raise

    @property
    def sockets(self):
        return [node.socket for node in self.nodes]

    def metric(self, name, nodes=None):
        """Its sum over the nodes, all unless some are given, and all labels."""
        total = 0.0
        for node in nodes or self.nodes:
            url = f"http://{value_of(node, 'http')}/metrics"
            with urllib.request.urlopen(url, timeout=30) as page:
                text = page.read().decode()
            total += sum(float(value) for value in re.findall(
                rf"^{name}(?:\{{[^}}]*\}})? (\S+)$", text, re.MULTILINE))
        return total

    def remove(self):
        for daemon in (*self.nodes, self.catalog):
            daemon.remove()


class Pool:
    """The memory of a node's blocks, seen past the node: as a fault of the
    memory would be. Needs root."""

    def __init__(self, node):
        self._pid = node.process.pid

    def regions(self):
        with open(f"/proc/{self._pid}/maps", encoding="utf-8") as maps:
            for line in maps:
                words = line.split()
                if "memfd:firnkv-region" in line:
                    begin, end = (int(each, 16) for each in words[0].split("-"))
                    yield begin, end - begin

    def read(self):
        """By address; what the node has punched out reads as zeros."""
        found = {}
        with open(f"/proc/{self._pid}/mem", "rb", buffering=0) as memory:
            for begin, size in self.regions():
                memory.seek(begin)
                found[begin] = memory.read(size)
        return found

    def flip(self, address):
        """The highest bit of the byte at `address`."""
        with open(f"/proc/{self._pid}/mem", "r+b", buffering=0) as memory:
            memory.seek(address)
            byte = memory.read(1)[0]
            memory.seek(address)
            memory.write(bytes([byte ^ 0x80]))
