"""A client of the Mooncake store as a measuring program (command_loop.h): one
line in, one line out. Runs with the Python that its wheel is installed in.

    connect port=PORT segment=BYTES
    fill | warm | get | exists blocks=COUNT bytes=SIZE
    get: count=1 threads=1 millis=80
"""

import sys
import threading
import time

import numpy
from mooncake.store import MooncakeDistributedStore

LANDING = 64 << 20


def key_of(number, size):
    return f"block-{size}-{number}"


class Peer:
    def __init__(self):
        self.store = None
        self.memory = []

    def connect(self, port, segment):
        # Another one at each try: one that has failed is of no use.
        self.store = MooncakeDistributedStore()
        code = self.store.setup(f"127.0.0.1:{port}", "P2PHANDSHAKE", segment,
                                256 << 20, "tcp", "", "127.0.0.1:50051")
        if code != 0:
            raise RuntimeError(f"setup answered {code}")
        return {}

    def landing(self, thread):
        """Registered memory of one thread."""
        while len(self.memory) <= thread:
            memory = numpy.ones(LANDING, dtype=numpy.uint8)
            code = self.store.register_buffer(memory.ctypes.data, LANDING)
            if code != 0:
                raise RuntimeError(f"register_buffer answered {code}")
            self.memory.append(memory)
        return self.memory[thread].ctypes.data

    def fill(self, blocks, **words):
        size = words["bytes"]
        source = self.landing(0)
        for number in range(blocks):
            code = self.store.put_from(key_of(number, size), source, size)
            if code != 0:
                raise RuntimeError(f"put_from answered {code}")
        return {}

    def warm(self, blocks, **words):
        size = words["bytes"]
        for number in range(blocks):
            self.get_one([key_of(number, size)], [self.landing(0)], [size])
        return {}

    def get_one(self, keys, places, sizes):
        if len(keys) == 1:
            got = [self.store.get_into(keys[0], places[0], sizes[0])]
        else:
            got = self.store.batch_get_into(keys, places, sizes)
        if got != sizes:
            raise RuntimeError(f"a get answered {got}")

    def get(self, blocks, count=1, threads=1, millis=80, **words):
        size = words["bytes"]
        batches = LANDING // (size * count)
        # All that is asked for is made before: what is measured is the store.
        keys = [[key_of(first + i, size) for i in range(count)]
                for first in range(0, blocks - count + 1, count)]
        places = [[[self.landing(thread) + (turn * count + i) * size
                    for i in range(count)] for turn in range(batches)]
                  for thread in range(threads)]
        sizes = [size] * count

        def work(thread, turn):
            self.get_one(keys[(turn * threads + thread) % len(keys)],
                         places[thread][turn % batches], sizes)
            return size * count
        return measure(work, threads, millis)

    def exists(self, blocks, count, millis=80, **words):
        keys = [[key_of(first + i, words["bytes"]) for i in range(count)]
                for first in range(0, blocks - count + 1, count)]

        def work(_, turn):
            if set(self.store.batch_is_exist(keys[turn % len(keys)])) != {1}:
                raise RuntimeError("a key is missing")
            return 0
        return measure(work, 1, millis)


def measure(work, threads, millis):
    """As Measure of command_loop.h."""
    began = time.perf_counter_ns()
    until = began + millis * 1_000_000
    tallies = [[0, 0, began] for _ in range(threads)]
    errors = []

    def run(thread):
        tally = tallies[thread]
        try:
            while True:
                tally[1] += work(thread, tally[0])
                tally[0] += 1
                tally[2] = time.perf_counter_ns()
                if tally[2] >= until:
                    return
        except Exception as error:  # Whatever the wheel raises.
            errors.append(error)

    others = [threading.Thread(target=run, args=(i,))
              for i in range(1, threads)]
    for other in others:
        other.start()
    run(0)
    for other in others:
        other.join()
    if errors:
        raise errors[0]
    return {"nanos": max(tally[2] for tally in tallies) - began,
            "ops": sum(tally[0] for tally in tallies),
            "bytes": sum(tally[1] for tally in tallies)}


def main():
    # What the wheel prints goes elsewhere: standard output is for answers.
    import os
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    peer = Peer()
    for line in sys.stdin:
        verb, *rest = line.split()
        values = {name: int(value) for name, value in
                  (word.split("=") for word in rest)}
        try:
            counts = getattr(peer, verb)(**values)
            text = " ".join(["ok"] + [f"{name}={value}" for name, value in
                                      counts.items()])
        except Exception as error:  # Told to the driver, which goes on.
            text = f"error {error}".replace("\n", " ")
        print(text, file=answers, flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
