"""What the suites share: rows, the processes that they measure, and the loop
that takes turns between ours and the limit.
"""

import dataclasses
import shutil
import sys
import typing

from cluster import Cluster, Scratch
from program import Program, Skip

GIB = 2.0 ** 30
MIB = 1 << 20


@dataclasses.dataclass(frozen=True)
class Row:
    """One figure. `prepare(bench)` says how to take it once: a function for
    ours and one for the limit (None where the target is an absolute one), each
    giving a number in `unit`; or raises Skip."""
    suite: str
    name: str
    unit: str
    better: str
    target: typing.Optional[float]
    limit: typing.Optional[str]
    prepare: typing.Callable
    # Of a figure without a limit: how often it is taken.
    samples: int = 1


class Bench:
    """The run: its options, and what was started for it, by name."""

    def __init__(self, programs, pairs, quick):
        self.pairs = pairs
        self.quick = quick
        # Of one measurement: long enough for many turns of a batch.
        self.millis = 30 if quick else 150
        self.programs = programs
        self.scratch = Scratch(programs)
        self.kept = {}

    def once(self, name, make):
        """What make() gave the first time."""
        if name not in self.kept:
            self.kept[name] = make()
        return self.kept[name]

    def cluster(self, name, **options):
        return self.once(name,
                         lambda: Cluster(self.scratch, name, **options))

    def limit(self, name, instance=""):
        """A running limit program, `firnkv_bench_NAME_limit`."""
        program = self.scratch.program(f"firnkv_bench_{name}")
        return self.once(f"{name}.{instance}", lambda: Program([program]))

    def say(self, text):
        print(text, file=sys.stderr, flush=True)

    def stop_all(self):
        for one in reversed(list(self.kept.values())):
            if hasattr(one, "stop"):
                one.stop()
        self.kept = {}

    def close(self):
        self.stop_all()
        self.scratch.remove()

    def take(self, row):
        """The pairs of a row, in turns: what disturbs the machine for longer
        than a moment disturbs both."""
        ours, limit = row.prepare(self)
        if limit is None:
            count = 1 if self.quick else row.samples
            return [(ours(), None) for _ in range(count)]
        # The first of each warms what it uses.
        ours()
        limit()
        pairs = []
        for number in range(self.pairs):
            if number % 2 == 0:
                mine = ours()
                pairs.append((mine, limit()))
            else:
                theirs = limit()
                pairs.append((ours(), theirs))
        return pairs


def micros(counts):
    """Of one operation."""
    return counts["nanos"] / counts["ops"] / 1e3


def gib_a_second(counts):
    return counts["bytes"] / GIB / (counts["nanos"] / 1e9)


def need_program(name):
    """Where it is; or why a row is left out."""
    path = shutil.which(name)
    if path is None:
        raise Skip(f"{name} is not installed: tools/bench/run --install-peers")
    return path


def bare_call(bench, where, request, response):
    """Measures a bare gRPC call of those sizes; `where` is unix or tcp."""
    server = bench.limit("grpc_limit", "server " + where)
    caller = bench.limit("grpc_limit", "caller " + where)

    def serve():
        if where == "unix":
            address = "unix:" + bench.scratch.file("grpc_limit.sock")
            server.do("serve", address=address)
            return address
        return f"127.0.0.1:{server.do('serve', address='127.0.0.1:0')['port']}"

    address = bench.once(f"grpc_limit.address.{where}", serve)
    return lambda: caller.do("call", address=address, request=request,
                             response=response, millis=bench.millis)
