"""Programs in a virtual environment of an engine, as a test drives them."""

import json
import os
import select
import signal
import subprocess
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))

#: As vllm_engine.py has them.
PREFIXES = 5
PREFIX_TOKENS = 288
PROMPTS = 50

#: Seconds for a start or an answer: for a machine that does other things too.
PATIENCE = 1800.0

#: Set by run.py: environments, package, models, folders.
options = None


def environment(**more):
    """What every engine's process is started with: nothing is downloaded."""
    return {**os.environ, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1",
            "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1",
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "PYTHONHASHSEED": "0",
            "LMCACHE_TRACK_USAGE": "false",
            # Several engines run at once, and the model is small: threads that
            # wait for each other would only take the cores from one another.
            "OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            # Packages come without their bytecode; made once, and not here.
            "PYTHONPYCACHEPREFIX": os.path.join(options.logs, "..", "bytecode"),
            "PYTHONPATH": os.pathsep.join((options.package, HERE)), **more}


def tail(path, lines=60):
    with open(path, encoding="utf-8", errors="replace") as file:
        return "".join(file.readlines()[-lines:])


def kill_session(leader):
    """A process that was started as the first of a session, and all others of
    it: also those of process groups of their own."""
    session = leader.pid
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            if os.getsid(int(entry)) == session:
                os.kill(int(entry), signal.SIGKILL)
        except ProcessLookupError:
            pass
    leader.wait()


class Program:
    """A process with a log. `ready`: text that it says when it is."""

    def __init__(self, name, arguments, env, ready=None):
        self.name = name
        handle, self.log = tempfile.mkstemp(
            prefix=f"{name.replace(' ', '-')}.", suffix=".log",
            dir=options.logs)
        with os.fdopen(handle, "wb") as log:
            self.process = subprocess.Popen(
                arguments, env=env, stdin=subprocess.DEVNULL, stdout=log,
                stderr=subprocess.STDOUT, start_new_session=True)
        if ready is not None:
            self.wait_for(ready)

    def wait_for(self, text):
        until = time.monotonic() + PATIENCE
        while text not in self.said():
            self.check()
            if time.monotonic() > until:
                raise AssertionError(f"{self.name} does not say '{text}':\n"
                                     + tail(self.log))
            time.sleep(0.1)

    def said(self):
        with open(self.log, encoding="utf-8", errors="replace") as log:
            return log.read()

    def check(self):
        if self.process.poll() is not None:
            raise AssertionError(f"{self.name} has ended:\n" + tail(self.log))

    def kill(self):
        kill_session(self.process)


def run(name, venv, program, *arguments, env=None):
    """A program of this folder, to its end."""
    started = Program(name, [os.path.join(venv, "bin", "python"),
                             os.path.join(HERE, program), *arguments],
                      env or environment())
    if started.process.wait(timeout=PATIENCE) != 0:
        raise AssertionError(f"{name} failed:\n" + tail(started.log))
    return started


class Engine:
    """vllm_engine.py: one vLLM engine, which is asked for prompts."""

    def __init__(self, name, transfer=None, *, env=None, **config):
        self.name = name
        config = {"model": options.model, "kv_transfer_config": transfer,
                  **config}
        theirs, ours = os.pipe()
        answers, their_answers = os.pipe()
        for each in (theirs, their_answers):
            os.set_inheritable(each, True)
        handle, self.log = tempfile.mkstemp(
            prefix=f"{name.replace(' ', '-')}.", suffix=".log",
            dir=options.logs)
        with os.fdopen(handle, "wb") as log:
            self.process = subprocess.Popen(
                [os.path.join(options.vllm, "bin", "python"),
                 os.path.join(HERE, "vllm_engine.py"), json.dumps(config),
                 str(theirs), str(their_answers)],
                env=environment(**(env or {})), stdin=subprocess.DEVNULL,
                stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
                pass_fds=(theirs, their_answers))
        os.close(theirs)
        os.close(their_answers)
        self._commands = os.fdopen(ours, "w")
        self._answers = answers
        self._rest = b""
        self._started = False

    def ready(self):
        """Waits for its start: several may start at once."""
        if not self._started:
            list(self._until_done())
            self._started = True
        return self

    def ask(self, do, **task):
        """All answers of one command."""
        return list(self.each(do, **task))

    def each(self, do, **task):
        """Its answers as they come."""
        self.ready()
        self._commands.write(json.dumps({"do": do, **task}) + "\n")
        self._commands.flush()
        yield from self._until_done()

    def generate(self, family, count=PROMPTS):
        return self.ask("generate", family=family, count=count)

    def end(self):
        if self.process.poll() is None and self._started:
            try:
                self._commands.write('{"do": "end"}\n')
                self._commands.flush()
                self.process.wait(timeout=120)
            except (OSError, subprocess.TimeoutExpired):
                pass
        kill_session(self.process)
        self._commands.close()
        os.close(self._answers)

    def _until_done(self):
        while True:
            line = self._line()
            answer = json.loads(line)
            if answer.get("done"):
                return
            yield answer

    def _line(self):
        until = time.monotonic() + PATIENCE
        while b"\n" not in self._rest:
            readable, _, _ = select.select([self._answers], [], [], 1.0)
            more = os.read(self._answers, 1 << 16) if readable else None
            if more == b"" or time.monotonic() > until:
                raise AssertionError(f"{self.name} does not answer:\n"
                                     + tail(self.log))
            self._rest += more or b""
        line, self._rest = self._rest.split(b"\n", 1)
        return line


def cached(found):
    """Of the first prompt of each prefix."""
    return [each["cached"] for each in found[:PREFIXES]]


def tokens(found):
    return [each["tokens"] for each in found]


class Plain:
    """What an engine without any cache says, family by family: what all others
    are measured by. One process computes it for all modules."""

    #: Of all modules together, in the order in which they are wanted.
    FAMILIES = (1, 2, 3, 4, 5, 101, 102, 103, 104)

    @staticmethod
    def path(family):
        return os.path.join(options.plain, f"{family}.json")

    @classmethod
    def compute(cls):
        """Writes all; what that process does."""
        one = Engine("plain")
        try:
            for family in cls.FAMILIES:
                found = one.generate(family)
                with open(cls.path(family) + ".new", "w",
                          encoding="utf-8") as file:
                    json.dump(found, file)
                os.rename(cls.path(family) + ".new", cls.path(family))
        finally:
            one.end()

    @classmethod
    def tokens(cls, family):
        """Waits for it."""
        until = time.monotonic() + PATIENCE
        while not os.path.exists(cls.path(family)):
            if time.monotonic() > until:
                raise AssertionError("the engine without a cache has not said "
                                     f"family {family}")
            time.sleep(0.2)
        with open(cls.path(family), encoding="utf-8") as file:
            return tokens(json.load(file))
