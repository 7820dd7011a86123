"""Whether an installed wheel stands alone: run by the interpreter of a clean
virtual environment (tools/wheel).

    check_wheel.py WHEEL NODE

Writes and reads against a firnkv-node of its own, and looks at what has been
loaded for that: nothing but the wheel's libraries and those of every Linux.
"""

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time



def libraries():
    """Files of all libraries that are loaded."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        paths = {line.split(None, 5)[-1].strip() for line in maps}
    return {path for path in paths if ".so" in path}


# Python's own, as that of the machine has them.
BEFORE = libraries()

import firnkv  # noqa: E402
from firnkv import Outcome  # noqa: E402

MOST_BYTES = 40_000_000
EVERYWHERE = re.compile(
    r"(ld-linux.*|lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+|util|python.*))\.so.*")


def start(program, folder):
    log = os.path.join(folder, "node.log")
    with open(log, "wb") as file:
        node = subprocess.Popen(
            [program, "--data-dir", os.path.join(folder, "data"),
             "--node-socket", os.path.join(folder, "node.sock"),
             "--node-control", "127.0.0.1:0", "--node-stream", "127.0.0.1:0",
             "--catalog-listen", "127.0.0.1:0", "--http-address",
             "127.0.0.1:0", "--dram-bytes", "64MiB"],
            stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT)
    end = time.monotonic() + 60
    while True:
        with open(log, encoding="utf-8") as file:
            if any(line.split()[:1] == ["http"] for line in file):
                return node
        if node.poll() is not None or time.monotonic() > end:
            sys.exit(f"check_wheel: the node does not start, see {log}")
        time.sleep(0.05)


def write_and_read(socket):
    contract = firnkv.StateContract.opaque("check", block_tokens=16)
    with firnkv.Client(socket) as client:
        namespace = client.open_namespace("check", contract)
        chain = firnkv.Chain(block_tokens=16)
        chain.extend(b"%d" % i for i in range(8))
        blocks = [os.urandom(100_000) for _ in range(8)]
        stored = namespace.write(chain, blocks, deadline=20)
        landing = bytearray(8 * 100_000)
        read = namespace.read(chain, landing, deadline=20)
        missed = firnkv.Chain(block_tokens=16)
        missed.append(b"other")
        missing = namespace.exists(missed, deadline=20)
    assert stored.outcomes == [Outcome.STORED] * 8, stored.outcomes
    assert read.outcomes == [Outcome.HIT] * 8, read.outcomes
    assert bytes(landing) == b"".join(blocks), "other bytes came back"
    assert missing.outcomes == [Outcome.MISS], missing.outcomes


def foreign(before):
    """What is loaded beside `before`, from neither the package nor where every
    Linux has it, nor as a module of Python's own."""
    package = os.path.dirname(os.path.abspath(firnkv.__file__))
    return sorted(
        path for path in libraries() - before
        if not path.startswith(package) and "/lib-dynload/" not in path
        and not EVERYWHERE.fullmatch(os.path.basename(path)))


def main():
    wheel, program = sys.argv[1:]
    size = os.path.getsize(wheel)
    assert size <= MOST_BYTES, f"{wheel} has {size} bytes, of {MOST_BYTES}"
    folder = tempfile.mkdtemp(prefix="firnkv-check.")
    node = start(program, folder)
    try:
        write_and_read(os.path.join(folder, "node.sock"))
    finally:
        node.kill()
        node.wait()
        shutil.rmtree(folder, ignore_errors=True)
    taken = foreign(BEFORE)
    assert not taken, f"taken from the machine: {taken}"
    version = importlib.metadata.version("firnkv")
    print(f"check_wheel: firnkv {version}, {size / 1e6:.1f} MB: written and "
          f"read; all its libraries are its own")


if __name__ == "__main__":
    main()
