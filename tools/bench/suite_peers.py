"""Suite `peers`: Redis, memcached and the Mooncake store beside us, the same
sizes and batches, 1 and 4 client threads. We verify what we read; they do not.
"""

import os
import socket
import subprocess
import sys
import time

import cluster
from bench import MIB, Row, gib_a_second, need_program
from program import BenchError, Daemon, Program, Skip

SET_BYTES = 256 * MIB
SMALL = 64 << 10
# Blocks of one call: single ones, and a batch of small ones.
SHAPES = {"64k": (SMALL, 1), "64k_16": (SMALL, 16), "1m": (MIB, 1)}

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
VENV = os.path.join(ROOT, "build", "peers")
MOONCAKE = "mooncake-transfer-engine-non-cuda"


# --- Redis and memcached.

class CachePeer:
    """A server, and a program that asks it."""

    def __init__(self, bench, kind, where):
        self.bench = bench
        self.program = Program([bench.scratch.program("firnkv_bench_cache_peer")],
                               cluster.WORKER_UID)
        self.filled = None
        self.daemon = None
        folder = bench.scratch.folder(f"{kind}.{where}", cluster.DAEMON_UID)
        path = os.path.join(folder, "peer.sock")
        port = free_port()
        self.address = ("unix:" + path if where == "unix"
                        else f"127.0.0.1:{port}")
        start = redis_command if kind == "redis" else memcached_command
        self.daemon = Daemon(kind, start(where, path, port, folder),
                             bench.scratch.file(f"{kind}.{where}.log"),
                             cluster.DAEMON_UID)
        self.kind = kind
        self.daemon.wait_until("a connection", self.connects)

    def connects(self):
        try:
            self.program.do("connect", kind=self.kind, address=self.address)
            return True
        except BenchError:
            return False

    def get(self, bytes_of_a_block, count, threads):
        """Measures; fills the server before, where it has other blocks."""
        def take():
            if self.filled != bytes_of_a_block:
                self.program.do("fill", blocks=SET_BYTES // bytes_of_a_block,
                                bytes=bytes_of_a_block)
                self.filled = bytes_of_a_block
            return self.program.do("get", count=count, threads=threads,
                                   millis=self.bench.millis)
        return take

    def stop(self):
        self.program.stop()
        self.daemon.stop()


def free_port():
    """Of loopback; free a moment ago."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def redis_command(where, path, port, folder):
    listen = (["--port", "0", "--unixsocket", path, "--unixsocketperm", "777"]
              if where == "unix" else
              ["--port", str(port), "--bind", "127.0.0.1"])
    return [need_program("redis-server"), *listen, "--save", "",
            "--appendonly", "no", "--dir", folder]


def memcached_command(where, path, port, _):
    listen = (["-s", path, "-a", "0777"] if where == "unix" else
              ["-l", "127.0.0.1", "-p", str(port), "-U", "0"])
    # Values of 1 MiB are beyond its default; room for all, so that nothing
    # leaves.
    return [need_program("memcached"), *listen, "-m", "2048", "-I", "8m"]


def cache_peer(bench, kind, where):
    need_program("redis-server" if kind == "redis" else "memcached")
    return bench.once(f"{kind}.{where}", lambda: CachePeer(bench, kind, where))


def memcached(bench, where):
    return cache_peer(bench, "memcached", where)


# --- Mooncake.

def mooncake_python():
    python = os.path.join(VENV, "bin", "python")
    if not os.path.exists(python):
        raise Skip(f"{MOONCAKE} is not installed: "
                   "tools/bench/run --install-peers")
    return python


class Mooncake:
    """Its master and two clients, in a network of their own: the master
    listens on every address."""

    NETWORK = "firnkv-bench"

    def __init__(self, bench):
        if not bench.scratch.root:
            raise Skip("Mooncake needs a network of its own: run this as root")
        python = mooncake_python()
        self.bench = bench
        self.started = []
        self.filled = set()
        self.network("del", quiet=True)
        self.network("add")
        self.inside = ("ip", "netns", "exec", self.NETWORK)
        try:
            subprocess.run([*self.inside, "ip", "link", "set", "lo", "up"],
                           check=True)
            master = Daemon("mooncake_master",
                            [os.path.join(VENV, "bin", "mooncake_master")],
                            bench.scratch.file("mooncake_master.log"),
                            prefix=self.inside)
            self.started.append(master)
            script = os.path.join(HERE, "mooncake_peer.py")
            self.owner = self.client(python, script, 50101, 1024)
            self.asker = self.client(python, script, 50102, 0)
        except BaseException:
            self.stop()
            raise

    def client(self, python, script, port, segment_mib):
        program = Program([python, script], prefix=self.inside,
                          log=self.bench.scratch.file(f"mooncake.{port}.log"))
        self.started.append(program)
        # The master takes a while to listen.
        for attempt in range(20):
            try:
                program.do("connect", port=port, segment=segment_mib << 20)
                return program
            except BenchError:
                self.started[0].check()
                if attempt == 19:
                    raise
                time.sleep(0.5)
        return program

    def network(self, what, quiet=False):
        subprocess.run(["ip", "netns", what, self.NETWORK], check=not quiet,
                       stderr=subprocess.DEVNULL if quiet else None)

    def fill(self, size):
        if size not in self.filled:
            self.owner.do("fill", blocks=SET_BYTES // size, bytes=size)
            # A first pass is several times slower than the next ones.
            for one in (self.owner, self.asker):
                one.do("warm", blocks=SET_BYTES // size, bytes=size)
            self.filled.add(size)

    def get(self, where, size, count, threads):
        """By the client that has the bytes itself, or by the other one."""
        program = self.owner if where == "local" else self.asker

        def take():
            self.fill(size)
            return program.do("get", blocks=SET_BYTES // size, bytes=size,
                              count=count, threads=threads,
                              millis=self.bench.millis)
        return take

    def exists(self):
        def take():
            self.fill(SMALL)
            return self.asker.do("exists", blocks=SET_BYTES // SMALL,
                                 bytes=SMALL, count=128,
                                 millis=self.bench.millis)
        return take

    def stop(self):
        for one in reversed(self.started):
            one.stop()
        self.network("del", quiet=True)


def mooncake(bench):
    mooncake_python()
    return bench.once("mooncake", lambda: Mooncake(bench))


# --- Rows.

def ours(bench, where, size, count, threads):
    """Ours over the same kind of path."""
    if where == "local":
        from suite_core import reader
        worker, name = reader(bench, size)
    else:
        from suite_data import remote
        worker, name = remote(bench, size)
    return lambda: worker.do("read", name=name, count=count, threads=threads,
                             millis=bench.millis)


def get_row(peer, where, shape, threads):
    size, count = SHAPES[shape]

    def prepare(bench):
        if peer == "mooncake":
            theirs = mooncake(bench).get(where, size, count, threads)
        else:
            kind = "unix" if where == "local" else "tcp"
            theirs = cache_peer(bench, peer, kind).get(size, count, threads)
        mine = ours(bench, where, size, count, threads)
        return lambda: gib_a_second(mine()), lambda: gib_a_second(theirs())
    how = {"tcp": "TCP", "local": "in its process" if peer == "mooncake"
           else "unix socket"}[where]
    return Row("peers", f"{peer}_{where}_{shape}_{threads}t", "GiB/s", "up",
               1.0, f"{peer}, {how}", prepare)


def view_row(peer):
    """A batch of views beside a batch of copies: views hand out the bytes where
    they lie."""
    def prepare(bench):
        from suite_core import reader
        if peer == "mooncake":
            theirs = mooncake(bench).get("local", SMALL, 16, 1)
        else:
            theirs = cache_peer(bench, peer, "unix").get(SMALL, 16, 1)
        worker, name = reader(bench, SMALL)
        return (lambda: gib_a_second(worker.do("views", name=name, count=128,
                                               millis=bench.millis)),
                lambda: gib_a_second(theirs()))
    return Row("peers", f"{peer}_views", "GiB/s", "up", 10.0,
               f"{peer}, local, batches of 16", prepare)


def exists_row(bench):
    from suite_core import reader
    theirs = mooncake(bench).exists()
    worker, name = reader(bench, SMALL)

    def rate(counts):
        return 128 * counts["ops"] / (counts["nanos"] / 1e9)
    return (lambda: rate(worker.do("exists", name=name, count=128,
                                   millis=bench.millis)),
            lambda: rate(theirs()))


PEER_ROWS = [get_row(peer, where, shape, threads)
             for peer in ("redis", "memcached", "mooncake")
             for where in ("tcp", "local")
             for shape in SHAPES
             for threads in (1, 4)]
PEER_ROWS += [view_row(peer) for peer in ("redis", "memcached", "mooncake")]
PEER_ROWS.append(Row("peers", "mooncake_exists_128", "keys/s", "up", 1.0,
                     "mooncake, its master", exists_row))


# --- Installing.

def install():
    """Debian's packages, and the wheel into a folder of its own."""
    quiet = dict(os.environ, DEBIAN_FRONTEND="noninteractive", RUNLEVEL="1")
    steps = [
        ["apt-get", "update", "-qq"],
        # Started by us, with our options, not by the system.
        ["apt-get", "install", "-y", "-qq", "--no-install-recommends",
         "memcached", "redis-server", "libibverbs1", "libnuma1",
         "libcurl4"],
        [sys.executable, "-m", "venv", VENV],
        [os.path.join(VENV, "bin", "pip"), "install", "--quiet", "numpy",
         MOONCAKE],
    ]
    for step in steps:
        print(" ".join(step), file=sys.stderr, flush=True)
        subprocess.run(step, check=True, env=quiet)
