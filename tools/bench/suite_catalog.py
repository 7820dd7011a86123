"""The catalog's part of suite `core`: announcements, Locate, memory, restart.
"""

import time

import cluster
from bench import Row, bare_call, micros
from program import Program, resident_bytes

# In a catalog that is asked.
KEYS = 1_000_000
# Of those, how many are asked for in turn.
ASKED = 1 << 16
# So that a lease outlives the pauses between two measurements.
LEASE = ("--catalog-lease", "5m")
BLOCK = 64 << 10

# An entry with one copy in the store (docs/CATALOG_SCHEMA.md): namespace and
# key; kind, version, sequence, clear epoch, parent, anchor, place, count, one
# location, checksum.
ENTRY_KEY = 16 + 32
ENTRY_VALUE = 2 + 8 + 8 + 32 + 32 + 12 + 4 + 2 + (16 + 8 + 8 + 1 + 8 + 8) + 4


def announcer(bench, name):
    """A catalog of that name, and a node that announces to it."""
    world = bench.cluster(name, nodes=0, catalog=LEASE)

    def start():
        node = Program([bench.scratch.program("firnkv_bench_announce")],
                       cluster.WORKER_UID)
        node.do("register", catalog=world.address, secret=world.worker_secret,
                name="announced", bytes=BLOCK)
        return node
    return world, bench.once(name + ".announcer", start)


def scaled(bench, keys):
    return keys // 20 if bench.quick else keys


def announce_to(node, keys):
    node.do("announce", seconds=600, upto=keys)


def asked(bench):
    """A catalog with keys, and a worker without a node that asks for them."""
    world, node = announcer(bench, "asked")
    keys = scaled(bench, KEYS)

    def start():
        announce_to(node, keys)
        worker = Program([bench.scratch.program("firnkv_bench_sdk")],
                         cluster.WORKER_UID)
        worker.do("connect", client="a", catalog=world.address,
                  token=world.token())
        worker.do("open", name="announced", bytes=BLOCK)
        worker.do("keys", name="announced", blocks=min(ASKED, keys), of=keys)
        return worker
    return node, bench.once("asked.worker", start)


def locate(count):
    def prepare(bench):
        node, worker = asked(bench)
        # Key and anchor; outcome, count, node, tier, generation, length.
        call = bare_call(bench, "tcp", 200 + 64 * count, 100 + 15 * count)

        def ours():
            node.do("keep")
            return micros(worker.do("exists", name="announced", count=count,
                                    millis=bench.millis))
        return ours, lambda: micros(call())
    return prepare


def announce(bench):
    node, _ = asked(bench)
    limit = bench.limit("rocksdb_limit")
    bench.once("rocksdb_limit.open", lambda: limit.do(
        "open", directory=bench.scratch.file("rocksdb")))
    millis = 3 * bench.millis

    def ours():
        counts = node.do("announce", millis=millis)
        return counts["keys"] / (counts["nanos"] / 1e9)

    def theirs():
        counts = limit.do("write", records=4096, key=ENTRY_KEY,
                          value=ENTRY_VALUE, millis=millis)
        return 4096 * counts["ops"] / (counts["nanos"] / 1e9)
    return ours, theirs


def wait_until_whole(world, keys):
    def whole():
        return (world.metric("catalog", "firnkv_catalog_index_whole") == 1 and
                world.metric("catalog",
                             "firnkv_catalog_index_entries") >= keys)
    world.catalog.wait_until("the index", whole, seconds=300)


def bytes_per_key(bench):
    """Worst of three counts: tables double at some, so none is typical."""
    world, node = announcer(bench, "memory")
    empty = resident_bytes(world.catalog.pid)

    def take():
        worst = 0.0
        for keys in (1_500_000, 2_000_000, 3_000_000):
            keys = scaled(bench, keys)
            announce_to(node, keys)
            # Memory that compactions are through with goes back meanwhile.
            time.sleep(1 if bench.quick else 5)
            grown = resident_bytes(world.catalog.pid) - empty
            bench.say(f"  {keys:,} keys: {grown / keys:.1f} bytes a key")
            worst = max(worst, grown / keys)
        return worst
    return take, None


def restart(bench):
    """From the start of the process after a SIGKILL until all is in memory; it
    serves meanwhile."""
    world, node = announcer(bench, "restarted")
    keys = scaled(bench, 2_000_000)
    announce_to(node, keys)

    def take():
        world.catalog.kill()
        began = time.monotonic()
        world.restart_catalog()
        wait_until_whole(world, keys)
        return time.monotonic() - began
    return take, None


def row(name, unit, better, target, limit, prepare, samples=1):
    return Row("core", name, unit, better, target, limit, prepare, samples)


CALL = "bare gRPC call, TCP"

CATALOG_ROWS = [
    row("locate_128", "µs", "down", 1.5, CALL, locate(128)),
    row("locate_4096", "µs", "down", 3.0, CALL, locate(4096)),
    row("announce", "keys/s", "up", 0.60, "RocksDB, batched, not synced",
        announce),
    row("catalog_restart_2m", "s", "down", 5, None, restart, samples=3),
    row("catalog_bytes_per_key", "B", "down", 100, None, bytes_per_key),
]
