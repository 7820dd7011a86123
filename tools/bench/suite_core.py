"""Suite `core`: the local paths, beside what the machine's memory and a bare
call allow.
"""

import json
import os
import subprocess

from bench import MIB, Row, bare_call, gib_a_second, micros
from program import Program, Skip
from suite_peers import ROOT, memcached

# Of what is read: beyond any cache.
SET_BYTES = 256 * MIB

ONE_MIB = MIB
SMALL = 64 << 10


def open_read_sizes(keys):
    """Bytes of OpenRead and its answer (proto/node.proto): 32 a key and a
    header; outcome 1, generation 8, length 3, and an extent of 1 + 2 + 4 + 3.
    """
    return 64 + 32 * keys, 40 + 22 * keys


def reader(bench, bytes_of_a_block, **options):
    """A worker at the node whose pool nobody writes to while it is read."""
    core = bench.cluster("core", nodes=2, dram="768MiB")
    who = f"core.reader {options}"
    worker = bench.once(who, lambda: core.worker(**options))
    name = f"b{bytes_of_a_block}"

    def fill():
        worker.do("open", name=name, bytes=bytes_of_a_block)
        worker.do("fill", name=name, blocks=SET_BYTES // bytes_of_a_block)
        worker.do("read", name=name, count=16, millis=1, check=1)
        return name

    return worker, bench.once(f"{who} {name}", fill)


def views(bench, worker, name):
    return lambda: micros(worker.do("views", name=name, count=128,
                                    millis=bench.millis))


def read_mapped(bench):
    """By gRPC, whatever the session could do."""
    worker, name = reader(bench, SMALL, frames=0)
    call = bare_call(bench, "unix", *open_read_sizes(128))
    return views(bench, worker, name), lambda: micros(call())


def read_mapped_frames(bench):
    worker, name = reader(bench, SMALL, frames=1)
    server = bench.limit("socket_limit", "unix server")
    asker = bench.limit("socket_limit", "unix asker")
    address = "unix:" + bench.scratch.file("socket_limit.sock")
    bench.once("socket_limit.unix", lambda: server.do(
        "serve", address=address, bytes=MIB))
    request, response = open_read_sizes(128)
    return (views(bench, worker, name),
            lambda: micros(asker.do("round_trip", address=address,
                                    request=request, response=response,
                                    millis=bench.millis)))


def memory(bench):
    def start():
        program = Program([bench.scratch.program("firnkv_bench_memory_limit")])
        program.do("set", bytes=SET_BYTES)
        return program
    return bench.once("memory_limit", start)


def copy_limit(bench, verb, batch, call):
    """GiB/s of a batch: the copy, and one bare call."""
    program = memory(bench)

    def take():
        nanos = (1e3 * micros(program.do(verb, batch=batch,
                                         millis=bench.millis))
                 + 1e3 * micros(call()))
        return gib_a_second({"bytes": batch, "nanos": nanos})
    return take


def read_copy(bytes_of_a_block, count):
    def prepare(bench):
        worker, name = reader(bench, bytes_of_a_block)
        call = bare_call(bench, "unix", *open_read_sizes(count))
        return (lambda: gib_a_second(worker.do("read", name=name, count=count,
                                               millis=bench.millis)),
                copy_limit(bench, "copy_out", bytes_of_a_block * count, call))
    return prepare


def read_local(bench):
    peer = memcached(bench, "unix")
    worker, name = reader(bench, SMALL)
    get = peer.get(SMALL, count=1, threads=1)
    return (lambda: micros(worker.do("read", name=name, count=1,
                                     millis=bench.millis)),
            lambda: micros(get()))


def write(shared, verb):
    def prepare(bench):
        core = bench.cluster("core", nodes=2, dram="768MiB")
        worker = bench.once("core.writer", lambda: core.worker(2))
        worker.do("open", name="written", bytes=ONE_MIB)
        # A reserve of 16 blocks, 110 bytes each.
        call = bare_call(bench, "unix", 64 + 16 * 110, 64)
        # Full before: what is measured is a pool in which blocks have to leave.
        bench.once("core.full", lambda: worker.do(
            "write", name="written", count=16, shared=1,
            millis=200 if bench.quick else 1500))
        return (lambda: gib_a_second(worker.do(
            "write", name="written", count=16, shared=shared,
            millis=bench.millis)),
                copy_limit(bench, verb, 16 * ONE_MIB, call))
    return prepare


def waste(bytes_of_a_block):
    """Of the slots of what was written, in percent: no block has to leave."""
    def prepare(bench):
        pool = bench.cluster("waste", nodes=1, dram="1536MiB")
        worker = bench.once("waste.writer", pool.worker)
        name = f"waste{bytes_of_a_block}"
        total = (64 if bench.quick else 384) * MIB

        def take():
            before = pool.metric(1, "firnkv_node_dram_resident_bytes")
            worker.do("open", name=name, bytes=bytes_of_a_block)
            if bytes_of_a_block:
                worker.do("fill", name=name, blocks=total // bytes_of_a_block)
                written = total // bytes_of_a_block * bytes_of_a_block
            else:
                written = worker.do("write_odd", name=name,
                                    bytes=total)["bytes"]
            slots = pool.metric(1, "firnkv_node_dram_resident_bytes") - before
            return 100 * (1 - written / slots)
        return take, None
    return prepare


def placement(name):
    """The trace through the product's placement and eviction, over eight
    simulated nodes."""
    def prepare(bench):
        program = os.path.join(bench.programs, "firnkv_placement")
        if not os.path.exists(program):
            raise Skip("this build has no firnkv_placement")
        trace = os.path.join(os.path.dirname(ROOT), "shared", "traces",
                             "conversation_trace.jsonl")
        if not os.path.exists(trace):
            raise Skip(f"there is no {trace}")

        def take():
            done = subprocess.run([program, trace], capture_output=True,
                                  text=True, check=True)
            figures = map(json.loads, done.stdout.splitlines())
            return next(one["value"] for one in figures
                        if one["name"] == name)
        return take, None
    return prepare


def row(name, unit, better, target, limit, prepare, samples=1):
    return Row("core", name, unit, better, target, limit, prepare, samples)


CALL = "bare gRPC call, unix socket"

LOCAL_ROWS = [
    row("read_mapped_128", "µs", "down", 1.5, CALL, read_mapped),
    row("read_mapped_128_frames", "µs", "down", 3.0,
        "bare round trip, unix socket", read_mapped_frames),
    row("read_copy_1m", "GiB/s", "up", 0.85, "copy and CRC32C, and a call",
        read_copy(ONE_MIB, 16)),
    row("read_copy_64k_128", "GiB/s", "up", 0.80,
        "copy and CRC32C, and a call", read_copy(SMALL, 128)),
    row("read_local_64k_1", "µs", "down", 1.0, "memcached, unix socket",
        read_local),
    row("write_shared_1m", "GiB/s", "up", 0.85,
        "CRC32C, copy and CRC32C, and a call", write(1, "write_staged")),
    row("write_1m", "GiB/s", "up", 0.70,
        "one thread copies, one copies and checksums", write(0, "write_piped")),
    # The block of tools/quickstart's replay; a size that is declared.
    row("dram_waste_trace", "%", "down", 3, None, waste(SMALL)),
    row("dram_waste_mix", "%", "down", 10, None, waste(0)),
]

PLACEMENT_ROWS = [
    row("placement_loss", "points", "down", 1, None,
        placement("placement_loss")),
    row("placement_balance", "×", "down", 1.3, None,
        placement("placement_balance")),
]
