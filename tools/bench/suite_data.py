"""Suite `data`: blocks over TCP on loopback, and what a node costs while nothing
happens. The limit is a bare request and response loop that checksums too.
"""

import time

import cluster
from bench import MIB, Row, gib_a_second
from program import Program, Skip, cpu_seconds, resident_bytes

SET_BYTES = 256 * MIB
SMALL = 64 << 10


def remote(bench, bytes_of_a_block):
    """A worker at node 1 that reads what only node 2 has, and goes on having:
    its own node fetches no copies."""
    world = bench.cluster("data", nodes=2, dram="1536MiB",
                          node=("--promotion-enabled", "false"))
    worker = bench.once("data.reader", lambda: world.worker(1))
    writer = bench.once("data.writer", lambda: world.worker(2))
    name = f"b{bytes_of_a_block}"
    blocks = SET_BYTES // bytes_of_a_block

    def fill():
        for one in (writer, worker):
            one.do("open", name=name, bytes=bytes_of_a_block)
        writer.do("fill", name=name, blocks=blocks, published=1)
        worker.do("keys", name=name, blocks=blocks)
        # Every block once, and every byte compared: from now on it is known
        # where they are.
        count = min(blocks, 128, 64 * MIB // bytes_of_a_block)
        for _ in range(blocks // count):
            worker.do("read", name=name, count=count, millis=0, check=1)
        return name
    return worker, bench.once(f"data.{name}", fill)


def loop_limit(bench):
    """The bare loop: a server with a pool of the same size, and who asks."""
    server = bench.limit("socket_limit", "server")
    asker = bench.limit("socket_limit", "asker")
    port = bench.once("socket_limit.port", lambda: server.do(
        "serve", address="127.0.0.1:0", bytes=SET_BYTES)["port"])
    return asker, f"127.0.0.1:{port}"


def read_tcp(bytes_of_a_block, count):
    def prepare(bench):
        worker, name = remote(bench, bytes_of_a_block)
        asker, address = loop_limit(bench)
        return (lambda: gib_a_second(worker.do("read", name=name, count=count,
                                               millis=bench.millis)),
                lambda: gib_a_second(asker.do(
                    "read", address=address, bytes=SET_BYTES,
                    batch=count * bytes_of_a_block, millis=bench.millis)))
    return prepare


def four_threads(bench):
    worker, name = remote(bench, MIB)

    def take(threads):
        return lambda: gib_a_second(worker.do(
            "read", name=name, count=16, threads=threads, millis=bench.millis))
    return take(4), take(1)


def write_tcp(bench):
    """A worker without a node of its own writes at whatever node it is told,
    into pools in which blocks have to leave."""
    world = bench.cluster("written", nodes=2, dram="256MiB")
    asker, address = loop_limit(bench)

    def start():
        worker = Program([bench.scratch.program("firnkv_bench_sdk")],
                         cluster.WORKER_UID)
        worker.do("connect", client="a", catalog=world.address,
                  token=world.token())
        worker.do("open", name="remote_writes", bytes=MIB)
        return worker
    worker = bench.once("data.remote_writer", start)


    def fill():
        while any(world.metric(number, "firnkv_node_evicted_blocks_total") == 0
                  for number in (1, 2)):
            worker.do("write", name="remote_writes", count=16, millis=200)
    bench.once("data.full", fill)
    return (lambda: gib_a_second(worker.do("write", name="remote_writes",
                                           count=16, millis=bench.millis)),
            lambda: gib_a_second(asker.do(
                "write", address=address, bytes=SET_BYTES, batch=16 * MIB,
                millis=bench.millis)))


def round_trips(bench):
    """Frames and calls that a warm read of one block sends."""
    worker, name = remote(bench, SMALL)

    def take():
        before = worker.do("stats")
        ops = worker.do("read", name=name, count=1,
                        millis=bench.millis)["ops"]
        after = worker.do("stats")
        sent = sum(after[what] - before[what]
                   for what in ("stream_reads", "calls"))
        return sent / ops
    return take, None


def idle(bench, pid_of):
    """Of one core, in percent."""
    remote(bench, SMALL)
    pid = pid_of(bench)
    seconds = 1 if bench.quick else 10

    def take():
        before = cpu_seconds(pid)
        time.sleep(seconds)
        return 100 * (cpu_seconds(pid) - before) / seconds
    return take, None


def connection_memory(bench):
    """What the node's heap grows by, a connection of those that have read."""
    remote(bench, SMALL)
    world = bench.kept["data"]
    clients = 4 if bench.quick else 16

    def take():
        before = resident_bytes(world.nodes[1].pid, "RssAnon")
        connections = world.metric(2, "firnkv_node_stream_connections")
        crowd = world.worker(1)
        crowd.do("open", name=f"b{SMALL}", bytes=SMALL)
        crowd.do("keys", name=f"b{SMALL}", blocks=SET_BYTES // SMALL)
        for number in range(clients):
            crowd.do("connect", client=f"c{number}", uid=world.daemon_uid,
                     socket=world.nodes[0].socket)
            crowd.do("read", client=f"c{number}", name=f"b{SMALL}", count=512,
                     millis=0)
        made = (world.metric(2, "firnkv_node_stream_connections")
                - connections)
        grown = resident_bytes(world.nodes[1].pid, "RssAnon") - before
        return max(0, grown) / made / MIB
    return take, None


def paced_reader(bench):
    """p99 of a paced reader, while another tenant writes and while none does.
    """
    if not bench.scratch.root:
        raise Skip("another tenant needs a user of its own: run this as root")
    world = bench.cluster("data", nodes=2, dram="1536MiB")
    paced = bench.once("data.paced", lambda: world.worker(1))
    other = bench.once("data.other",
                       lambda: world.worker(1, uid=cluster.OTHER_UID))
    paced.do("open", name="paced", bytes=SMALL)
    paced.do("fill", name="paced", blocks=512)
    other.do("open", name="noise", bytes=MIB)
    other.do("write", name="noise", count=16, shared=1, millis=500)
    millis = 4 * bench.millis

    def p99():
        return paced.do("paced", name="paced", count=1, hertz=500,
                        millis=millis)["p99"] / 1e3

    def beside():
        other.begin("write", name="noise", count=16, shared=1,
                    millis=millis + 200)
        time.sleep(0.1)
        worst = p99()
        other.end()
        return worst
    return beside, p99


def row(name, unit, better, target, limit, prepare, samples=1):
    return Row("data", name, unit, better, target, limit, prepare, samples)


LOOP = "bare TCP loop with CRC32C"

DATA_ROWS = [
    row("read_tcp_1m", "GiB/s", "up", 0.85, LOOP, read_tcp(MIB, 16)),
    row("read_tcp_4m", "GiB/s", "up", 0.85, LOOP, read_tcp(4 * MIB, 4)),
    row("read_tcp_16m", "GiB/s", "up", 0.85, LOOP, read_tcp(16 * MIB, 1)),
    row("read_tcp_64k_128", "GiB/s", "up", 0.70, LOOP, read_tcp(SMALL, 128)),
    row("write_tcp_1m", "GiB/s", "up", 0.75, LOOP, write_tcp),
    row("read_tcp_1m_4t", "GiB/s", "up", 1.0, "read_tcp_1m", four_threads),
    row("warm_read_round_trips", "", "down", 1, None, round_trips),
    row("idle_node_cpu", "%", "down", 1, None,
        lambda bench: idle(bench, lambda b: b.kept["data"].nodes[1].pid)),
    row("idle_client_cpu", "%", "down", 1, None,
        lambda bench: idle(bench, lambda b: b.kept["data.reader"].pid)),
    row("connection_memory", "MiB", "down", 1, None, connection_memory),
    row("paced_p99_beside_writer", "µs", "down", 2, "the same, alone",
        paced_reader),
]
