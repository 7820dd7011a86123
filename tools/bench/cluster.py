"""A FirnKV of real processes to be measured: a catalog, nodes and workers, each
with a user of its own where we are root.
"""

import os
import re
import secrets
import shutil
import subprocess
import tempfile
import urllib.request

from program import BenchError, Daemon, Program

# Users without a name: a process of a node's own user gets no mapping, so that
# the workers have another one. As tools/quickstart has them.
DAEMON_UID = 64101
WORKER_UID = 64102
OTHER_UID = 64103

PROGRAMS = ("firnkv", "firnkv-node", "firnkv-catalog")
ANY = "127.0.0.1:0"


class Scratch:
    """A folder that other users may enter, and the programs in it."""

    def __init__(self, programs):
        self.root = os.geteuid() == 0
        # Before there is a folder to be left behind.
        names = sorted(os.listdir(programs))
        self.path = tempfile.mkdtemp(prefix="firnkv-bench.", dir="/tmp")
        os.chmod(self.path, 0o755)
        os.mkdir(self.file("bin"), 0o755)
        for name in names:
            if name in PROGRAMS or name.startswith("firnkv_bench_"):
                copy_program(os.path.join(programs, name),
                             self.file("bin", name))

    def file(self, *names):
        return os.path.join(self.path, *names)

    def program(self, name):
        return self.file("bin", name)

    def folder(self, name, uid, mode=0o755):
        path = self.file(name)
        os.makedirs(path, mode=mode, exist_ok=True)
        os.chmod(path, mode)
        if self.root:
            os.chown(path, uid, uid)
        return path

    def private_file(self, name, text, uid):
        path = self.file(name)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600),
                  "w", encoding="ascii") as file:
            file.write(text)
        if self.root:
            os.chown(path, uid, uid)
        return path

    def remove(self):
        shutil.rmtree(self.path, ignore_errors=True)


def copy_program(source, to):
    """By hard link where that goes: the checkout may be in a folder that only
    its owner may enter."""
    try:
        os.link(source, to)
    except OSError:
        shutil.copy2(source, to)
    os.chmod(to, 0o755)


class Cluster:
    """One catalog and some nodes on loopback; all ports are free ones."""

    def __init__(self, scratch, name, nodes=1, dram="1GiB", catalog=(),
                 node=()):
        self.scratch = scratch
        self.name = name
        self.running = []
        self.nodes = []
        self.http = {}
        self.secret = secrets.token_hex(32)
        self.secret_file = scratch.private_file(f"{name}.secret",
                                                self.secret + "\n", DAEMON_UID)
        self.admin_secret = scratch.private_file(f"{name}.admin.secret",
                                                 self.secret + "\n",
                                                 os.geteuid())
        self.worker_secret = scratch.private_file(f"{name}.worker.secret",
                                                  self.secret + "\n",
                                                  WORKER_UID)
        self.daemon_uid = DAEMON_UID if scratch.root else os.geteuid()
        try:
            self.start_catalog(catalog)
            for number in range(1, nodes + 1):
                self.start_node(number, dram, node)
        except BaseException:
            self.stop()
            raise

    def start_catalog(self, arguments=()):
        folder = self.scratch.folder(f"{self.name}.catalog", DAEMON_UID, 0o700)
        self.catalog_command = [
            self.scratch.program("firnkv-catalog"), "--data-dir", folder,
            "--cluster-secret-file", self.secret_file,
            "--catalog-listen", ANY, "--http-address", ANY, *arguments]
        return self.restart_catalog()

    def restart_catalog(self):
        """A new process over the same folder, at other ports."""
        self.catalog = Daemon(
            "firnkv-catalog", self.catalog_command,
            self.scratch.file(f"{self.name}.catalog.log"), DAEMON_UID)
        self.running.append(self.catalog)
        self.address = self.catalog.value_of("grpc")
        self.http["catalog"] = self.catalog.value_of("http")
        return self.catalog

    def start_node(self, number, dram, arguments):
        name = f"{self.name}.node{number}"
        folder = self.scratch.folder(name, DAEMON_UID, 0o700)
        sockets = self.scratch.folder(name + ".sockets", DAEMON_UID)
        served = []
        if self.scratch.root:
            served = ["--sessions-uid-map",
                      f"{WORKER_UID}=default,{OTHER_UID}=other"]
            if number == 1:
                self.admin("tenant", "create", "other")
        node = Daemon(
            f"firnkv-node {number}",
            [self.scratch.program("firnkv-node"), "--data-dir", folder,
             "--cluster-secret-file", self.secret_file,
             "--node-catalog", self.address,
             "--node-socket", os.path.join(sockets, "node.sock"),
             "--node-control", ANY, "--node-stream", ANY,
             "--http-address", ANY, "--dram-bytes", dram, *served,
             *arguments],
            self.scratch.file(name + ".log"), DAEMON_UID)
        node.socket = os.path.join(sockets, "node.sock")
        self.running.append(node)
        self.nodes.append(node)
        node.value_of("dram")
        self.http[number] = node.value_of("http")
        node.wait_until("its registration", lambda: self.metric(
            number, "firnkv_node_registered") == 1)

    def admin(self, *arguments):
        """What the CLI prints for an administrator."""
        done = subprocess.run(
            [self.scratch.program("firnkv"), "--catalog", self.address,
             "--secret-file", self.admin_secret, *arguments],
            capture_output=True, text=True, timeout=60, check=False)
        if done.returncode != 0:
            raise BenchError(f"firnkv {' '.join(arguments)}: {done.stderr}")
        return done.stdout

    def metric(self, who, name):
        """Of "catalog" or a node's number: the sum over all labels."""
        address = f"http://{self.http[who]}/metrics"
        with urllib.request.urlopen(address, timeout=10) as answer:
            text = answer.read().decode()
        values = re.findall(rf"^{name}(?:\{{[^}}]*\}})? (\S+)$", text,
                            re.MULTILINE)
        if not values:
            raise BenchError(f"{who} has no metric {name}")
        return sum(map(float, values))

    def token(self):
        """Of the tenant `default`, for a worker without a node."""
        return self.admin("tenant", "token", "default").split()[-1]

    def worker(self, number=1, uid=WORKER_UID, **options):
        """A measuring program with a Client `a` at that node."""
        program = Program([self.scratch.program("firnkv_bench_sdk")], uid)
        self.running.append(program)
        program.do("connect", client="a", socket=self.nodes[number - 1].socket,
                   uid=self.daemon_uid, **options)
        return program

    def stop(self):
        for one in reversed(self.running):
            one.stop()
        self.running = []
