"""A firnkv-node of a test's own: a process with the catalog in it, and the
package connected to it.
"""

import os
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

import firnkv

PROGRAMS = os.environ["FIRNKV_BIN"]
# For a machine that is busy with other tests.
PATIENCE = 60.0
DEADLINE = 30.0

CONTRACT = firnkv.StateContract.opaque("test", block_tokens=16)


def until(what, done):
    """Waits for `done` to say something, which is returned."""
    end = time.monotonic() + PATIENCE
    while True:
        answer = done()
        if answer:
            return answer
        if time.monotonic() > end:
            raise AssertionError(f"did not happen within {PATIENCE} s: {what}")
        time.sleep(0.01)


class RealNode:
    """Starts in `folder`, and again there after kill()."""

    def __init__(self, *arguments, folder=None, dram_bytes="64MiB"):
        self.folder = folder or tempfile.mkdtemp(prefix="firnkv-python.")
        self.socket = os.path.join(self.folder, "node.sock")
        self.log = os.path.join(self.folder, "node.log")
        self.arguments = ("--dram-bytes", dram_bytes, *arguments)
        self.process = None

    def start(self):
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                self.command(), stdin=subprocess.DEVNULL, stdout=log,
                stderr=subprocess.STDOUT, start_new_session=True)
        until("the node is ready", self.ready)
        return self

    def command(self):
        return [os.path.join(PROGRAMS, "firnkv-node"),
                "--data-dir", os.path.join(self.folder, "data"),
                "--node-socket", self.socket,
                "--node-control", "127.0.0.1:0",
                "--node-stream", "127.0.0.1:0",
                "--catalog-listen", "127.0.0.1:0",
                "--http-address", "127.0.0.1:0", *self.arguments]

    def said(self):
        with open(self.log, encoding="utf-8", errors="replace") as log:
            return log.read()

    def ready(self):
        if self.process.poll() is not None:
            raise AssertionError(f"the node has ended: {self.said()}")
        return any(line.split()[:1] == ["http"]
                   for line in self.said().splitlines())

    def stop(self):
        """SIGSTOP: it is there and says nothing, from the return on: a thread
        that runs on another core gets to its signal a moment later."""
        self.process.send_signal(signal.SIGSTOP)
        until("every thread stands", self.stands)

    def stands(self):
        tasks = f"/proc/{self.process.pid}/task"
        for task in os.listdir(tasks):
            with open(f"{tasks}/{task}/stat", encoding="utf-8") as stat:
                # The state is behind the name, which may hold anything.
                if stat.read().rpartition(")")[2].split()[0] != "T":
                    return False
        return True

    def go_on(self):
        self.process.send_signal(signal.SIGCONT)

    def kill(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def remove(self):
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


class NodeTest(unittest.TestCase):
    """With a node and a Client of the class's own; names of namespaces are the
    test's own."""

    arguments = ()

    @classmethod
    def setUpClass(cls):
        cls.node = RealNode(*cls.arguments).start()
        cls.addClassCleanup(cls.node.remove)
        cls.client = firnkv.Client(cls.node.socket)
        cls.addClassCleanup(cls.client.close)

    def open(self, client=None, **options):
        """A namespace that is this test's, not chained."""
        options = {"chained": False, "deadline": DEADLINE, **options}
        return (client or self.client).open_namespace(
            self.id().rsplit(".", 1)[-1], CONTRACT, **options)


def content(number, size):
    """Bytes that no other number has."""
    some = b"%d." % number
    return (some * (size // len(some) + 1))[:size]
