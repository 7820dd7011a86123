"""The measuring program of the Python package: told what to do as those of
command_loop.h are, one line in, one line out. It reads what firnkv_bench_sdk
has written (bench_blocks.h).

    connect socket=PATH uid=UID
    keys name=NAME bytes=SIZE blocks=COUNT
    read name=NAME count=COUNT millis=MILLIS
    exists name=NAME count=COUNT millis=MILLIS
    submit count=COUNT millis=MILLIS    through firnkv.lmcache: the submits only
"""

import mmap
import select
import sys
import time

import firnkv
import firnkv.lmcache

DEADLINE = 20.0
# As landing.h: beyond the caches of any machine's cores.
LANDING_BYTES = 64 << 20
CHUNK = 4096

CONTRACT = firnkv.StateContract(
    model="bench", weights_revision="1", tokenizer="none",
    preprocessing="none", positional="none", kv_dtype="bytes",
    layer_order="none", kv_order="none", head_grouping="none",
    page_order="none", block_tokens=512)


class Landing:
    """Memory for several batches, taken in turn."""

    def __init__(self, batch_bytes):
        batches = max(1, LANDING_BYTES // batch_bytes)
        self.memory = memoryview(mmap.mmap(-1, batches * batch_bytes))
        for at in range(0, len(self.memory), 4096):
            self.memory[at] = 1
        self.parts = [self.memory[i * batch_bytes:(i + 1) * batch_bytes]
                      for i in range(batches)]
        self.turn = 0

    def next(self):
        self.turn += 1
        return self.parts[self.turn % len(self.parts)]


def measure(millis, operation):
    """Over and over for so long, at least once: operation() says its bytes."""
    began = time.perf_counter_ns()
    until = began + millis * 1_000_000
    count = total = 0
    while True:
        total += operation()
        count += 1
        now = time.perf_counter_ns()
        if now >= until:
            return {"nanos": now - began, "ops": count, "bytes": total}


class Worker:
    def __init__(self):
        self.client = self.options = None
        self.sets = {}
        self.plugin = None

    def connect(self, socket, uid):
        self.options = {"socket_path": socket, "server_uid": int(uid)}
        self.client = firnkv.Client(client_name="bench", location_life=3600,
                                    **self.options)
        return {}

    def keys(self, name, bytes, blocks):
        namespace = self.client.open_namespace(
            name, CONTRACT, block_bytes=int(bytes), chained=False)
        all_blocks = firnkv.unchained(f"{name}/{i}"
                                      for i in range(int(blocks)))
        self.sets[name] = (namespace, all_blocks, int(bytes))
        return {}

    def batches(self, name, count):
        """Goes round over the set."""
        _, blocks, _ = self.sets[name]
        at = 0
        while True:
            if at + count > len(blocks):
                at = 0
            yield blocks[at:at + count]
            at += count

    def read(self, name, count, millis):
        namespace, _, size = self.sets[name]
        count = int(count)
        landing = Landing(count * size)
        batches = self.batches(name, count)

        def operation():
            result = namespace.read(next(batches), landing.next(),
                                    deadline=DEADLINE)
            if result.hits != count:
                raise RuntimeError(f"a read ended {result.outcomes}")
            return count * size
        return measure(int(millis), operation)

    def exists(self, name, count, millis):
        namespace = self.sets[name][0]
        count = int(count)
        batches = self.batches(name, count)

        def operation():
            result = namespace.exists(next(batches), deadline=DEADLINE)
            if result.hits != count:
                raise RuntimeError(f"a lookup ended {result.outcomes}")
            return 0
        return measure(int(millis), operation)

    def submit(self, count, millis):
        """Gets of chunks that are there: how long each submit keeps its caller.
        """
        count = int(count)
        if self.plugin is None:
            self.plugin = firnkv.lmcache.Client(**self.options)
        keys = [f"org/a-model-of-some-name@01000100@0@{i:064x}"
                for i in range(count)]
        memory = memoryview(bytearray(count * CHUNK))
        views = [memory[i * CHUNK:(i + 1) * CHUNK] for i in range(count)]
        poller = select.poll()
        poller.register(self.plugin.event_fd(), select.POLLIN)

        def done():
            while True:
                poller.poll(500)
                for one in self.plugin.drain_completions():
                    return one
        while True:
            self.plugin.submit_batch_set(keys, views)
            if done()[1]:
                break
        nanos = []
        until = time.perf_counter_ns() + int(millis) * 1_000_000
        while not nanos or time.perf_counter_ns() < until:
            began = time.perf_counter_ns()
            self.plugin.submit_batch_get(keys, views)
            nanos.append(time.perf_counter_ns() - began)
            if done()[3] != [True] * count:
                raise RuntimeError("a get brought less than was set")
        # The median: a submit during which another process had the core says
        # nothing of ours.
        return {"nanos": sorted(nanos)[len(nanos) // 2], "ops": 1, "bytes": 0}


def main():
    worker = Worker()
    verbs = {name: getattr(worker, name)
             for name in ("connect", "keys", "read", "exists", "submit")}
    for line in sys.stdin:
        verb, *words = line.split()
        try:
            if verb not in verbs:
                raise RuntimeError(f"no command '{line.strip()}'")
            counts = verbs[verb](**dict(word.split("=", 1)
                                        for word in words))
        except Exception as error:  # pylint: disable=broad-except
            text = str(error).replace("\n", " ")
            print(f"error {type(error).__name__}: {text}", flush=True)
            continue
        print(" ".join(["ok", *(f"{name}={count}"
                                for name, count in counts.items())]),
              flush=True)


if __name__ == "__main__":
    main()
