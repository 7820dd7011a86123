"""Suite `python`: the Python package beside the C++ SDK, the same batches of the
same blocks at the same node; and what a submit of LMCache's contract costs its
caller.
"""

import os
import shutil
import subprocess
import sys

from bench import Row, gib_a_second, micros
from cluster import WORKER_UID
from program import Program, Skip, prefix_of
from suite_core import ONE_MIB, SET_BYTES, SMALL, reader


def interpreter(bench, folder):
    """The first Python that the worker's user may run and that can load the
    package."""
    said = "there is no Python"
    for python in (sys.executable, "/usr/bin/python3"):
        command = [*prefix_of(WORKER_UID), "env", f"PYTHONPATH={folder}",
                   python, "-B", "-c", "import firnkv"]
        done = subprocess.run(command, capture_output=True, text=True,
                              check=False)
        if done.returncode == 0:
            return [*command[len(prefix_of(WORKER_UID)):-2]]
        said = (done.stderr.strip().splitlines() or [said])[-1]
    raise Skip(f"the package firnkv cannot be loaded: {said}")


def package(bench):
    """The built package, where the worker's user may read it."""
    built = os.path.join(os.path.dirname(bench.programs), "python")
    if not os.path.isdir(built):
        raise Skip(f"there is no {built}: this build has no Python package")
    folder = bench.scratch.file("python")
    if not os.path.isdir(folder):
        shutil.copytree(built, folder)
        for path, _, files in os.walk(folder):
            os.chmod(path, 0o755)
            for name in files:
                os.chmod(os.path.join(path, name), 0o644)
    return folder


def worker(bench):
    """A Python process at the core suite's node, as its C++ workers are."""
    core = bench.cluster("core", nodes=2, dram="768MiB")

    def start():
        folder = package(bench)
        script = bench.scratch.file("python_worker.py")
        shutil.copy(os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                 "python_worker.py"), script)
        os.chmod(script, 0o644)
        program = Program([*interpreter(bench, folder), script], WORKER_UID)
        program.do("connect", socket=core.nodes[0].socket,
                   uid=core.daemon_uid)
        return program
    return bench.once("python.worker", start)


def both(bench, size):
    """The two workers, and the name of the blocks that both read."""
    ours = worker(bench)
    theirs, name = reader(bench, size)
    bench.once(f"python.keys {name}", lambda: ours.do(
        "keys", name=name, bytes=size, blocks=SET_BYTES // size))
    return ours, theirs, name


def read(size, count):
    def prepare(bench):
        ours, theirs, name = both(bench, size)
        return tuple(lambda one=one: gib_a_second(one.do(
            "read", name=name, count=count, millis=bench.millis))
                     for one in (ours, theirs))
    return prepare


def exists(bench):
    ours, theirs, name = both(bench, SMALL)
    return tuple(lambda one=one: micros(one.do(
        "exists", name=name, count=128, millis=bench.millis))
                 for one in (ours, theirs))


def submit(bench):
    ours = worker(bench)
    return lambda: micros(ours.do("submit", count=128,
                                  millis=bench.millis)), None


def row(name, unit, better, target, limit, prepare, samples=1):
    return Row("python", name, unit, better, target, limit, prepare, samples)


PYTHON_ROWS = [
    row("py_read_64k_128", "GiB/s", "up", 0.85, "C++ SDK", read(SMALL, 128)),
    row("py_read_1m_16", "GiB/s", "up", 0.85, "C++ SDK", read(ONE_MIB, 16)),
    row("py_exists_128", "µs", "down", 1.5, "C++ SDK", exists),
    row("lmcache_submit_128", "µs", "down", 50, None, submit, samples=15),
]
