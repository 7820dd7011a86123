"""Suite `flash`: the flash tier on one file, beside fio on the same one with the
same block size and depth.
"""

import json
import os
import subprocess

from bench import MIB, Row, gib_a_second, need_program
from program import BenchError, Program

DEVICE_BYTES = 4 << 30
IMAGE_BYTES = 100 << 30


def program(bench):
    return bench.once("flash.program", lambda: Program(
        [bench.scratch.program("firnkv_bench_flash")]))


def fio(bench, path, how, block, depth):
    """GiB/s; reads of our own device file hurt nothing."""
    need_program("fio")

    def take():
        done = subprocess.run(
            ["fio", "--name=limit", f"--filename={path}", f"--rw={how}",
             "--direct=1", "--ioengine=io_uring", f"--bs={block}",
             f"--iodepth={depth}", "--time_based",
             f"--runtime={4 * bench.millis}ms", f"--size={DEVICE_BYTES // 2}",
             "--fixedbufs=1", "--registerfiles=1", "--randrepeat=0",
             "--output-format=json"],
            capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise BenchError(f"fio: {done.stderr.strip()[-200:]}")
        job = json.loads(done.stdout)["jobs"][0]
        side = "read" if "read" in how else "write"
        return job[side]["bw_bytes"] / 2.0 ** 30
    return take


def filled(bench, block):
    """The tier with blocks of one size on half of its file."""
    ours = program(bench)
    path = bench.scratch.file("flash.device")

    def fill():
        ours.do("open", path=path, bytes=DEVICE_BYTES, largest=max(block, MIB))
        ours.do("fill", blocks=DEVICE_BYTES // 2 // block, bytes=block)
        return block
    if bench.kept.get("flash.filled") != block:
        bench.kept["flash.filled"] = fill()
    return ours, path


def read(block, depth):
    def prepare(bench):
        limit = fio(bench, bench.scratch.file("flash.device"), "randread",
                    block, depth)
        ours, _ = filled(bench, block)
        return (lambda: gib_a_second(ours.do("read", depth=depth,
                                             millis=4 * bench.millis)),
                limit)
    return prepare


def demote(bench):
    limit = fio(bench, bench.scratch.file("fio.device"), "write", MIB, 16)
    ours, _ = filled(bench, MIB)
    bench.kept["flash.filled"] = None
    return (lambda: gib_a_second(ours.do("demote", bytes=MIB,
                                         millis=8 * bench.millis)), limit)


def write_amplification(bench):
    ours, _ = filled(bench, MIB)
    bench.kept["flash.filled"] = None

    def take():
        counts = ours.do("demote", bytes=MIB, millis=8 * bench.millis)
        return counts["written"] / counts["admitted"]
    return take, None


def recovered(bench):
    """What a start on a made image of 100 GiB of 64 KiB records says."""
    ours = program(bench)
    path = bench.scratch.file("flash.image")
    size = IMAGE_BYTES // (10 if bench.quick else 1)
    bench.once("flash.image", lambda: ours.do(
        "image", seconds=600, path=path, bytes=size, record=64 << 10))
    bench.kept["flash.filled"] = None
    return lambda: ours.do("recover", seconds=600, path=path, bytes=size,
                           largest=64 << 10)


def recovery(bench):
    take = recovered(bench)

    def seconds():
        # From the device, as after a boot.
        descriptor = os.open(bench.scratch.file("flash.image"), os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)
        return take()["nanos"] / 1e9
    return seconds, None


def index_bytes(bench):
    take = recovered(bench)

    def each():
        counts = take()
        return counts["index_bytes"] / counts["records"]
    return each, None


def row(name, unit, better, target, limit, prepare, samples=1):
    return Row("flash", name, unit, better, target, limit, prepare, samples)


FLASH_ROWS = [
    row("flash_read_1m", "GiB/s", "up", 0.90, "fio", read(MIB, 8)),
    row("flash_read_4m", "GiB/s", "up", 0.90, "fio", read(4 * MIB, 8)),
    row("flash_read_64k", "GiB/s", "up", 0.80, "fio", read(64 << 10, 32)),
    row("flash_demote", "GiB/s", "up", 0.85, "fio", demote),
    row("flash_write_amplification", "", "down", 1.05, None,
        write_amplification, 3),
    row("flash_recovery_100g", "s", "down", 3, None, recovery, 3),
    row("flash_index_bytes", "B", "down", 40, None, index_bytes),
]
