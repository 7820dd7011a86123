"""Real engines against real daemons, on CPU: tools/test --engines.

    run.py --vllm VENV --sglang VENV --programs FOLDER --package FOLDER
           --work FOLDER [--jobs N] [MODULE[.CLASS[.TEST]]...]

Modules run beside each other, in processes of their own: most of an engine's
time is its start, on one core. What is measured is printed beside the outcome of
the tests; each engine's own words are in the folder of logs.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
# The longest first.
MODULES = ("vllm_test.ConnectorTest", "quickstart_test", "mooncake_test",
           "lmcache_test", "sglang_test", "vllm_test.TierTest",
           "vllm_test.AwayTest")
# By itself: it measures time.
ALONE = ("first_token_test",)
PLAIN = "plain"
# Those that need nothing of it.
WITHOUT_PLAIN = ("sglang_test", "quickstart_test")


def models(options, engine):
    """The models, unless they were made before."""
    for size in ("small", "large"):
        folder = os.path.join(options.work, "models", size)
        if not os.path.exists(os.path.join(folder, "tokenizer.json")):
            shutil.rmtree(folder, ignore_errors=True)
            engine.run(f"model {size}", options.vllm, "tiny_model.py", folder,
                       size)


def one_module(name, engine):
    """In its own process."""
    if name == PLAIN:
        engine.Plain.compute()
        return 0
    suite = unittest.defaultTestLoader.loadTestsFromNames([name])
    result = unittest.TextTestRunner(stream=sys.stdout, verbosity=2).run(suite)
    failed = len(result.failures) + len(result.errors)
    print(f"{max(0, result.testsRun - failed)} passed, {failed} failed")
    return int(failed > 0)


class Child:
    def __init__(self, name, options):
        self.name = name
        self.began = time.monotonic()
        self.log = os.path.join(options.logs, f"{name}.out")
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-B", *sys.argv[:1], *options.given,
                 "--module", name], stdin=subprocess.DEVNULL, stdout=log,
                stderr=subprocess.STDOUT)

    def counts(self):
        """(passed, failed) once it has ended; what it said is printed."""
        with open(self.log, encoding="utf-8", errors="replace") as log:
            text = log.read()
        print(f"--- {self.name}, {time.monotonic() - self.began:.0f} s")
        print(text, end="", flush=True)
        if self.name == PLAIN:
            return 0, int(self.process.returncode != 0)
        said = re.search(r"^(\d+) passed, (\d+) failed$", text.rstrip(),
                         re.MULTILINE)
        return ((int(said.group(1)), int(said.group(2))) if said
                else (0, 1))


def all_modules(names, options):
    """(passed, failed) of all, `options.jobs` at a time."""
    waiting, running = list(names), []
    if any(not name.startswith(WITHOUT_PLAIN) for name in names):
        running.append(Child(PLAIN, options))
    passed = failed = 0
    while waiting or running:
        while waiting and len(running) <= options.jobs:
            running.append(Child(waiting.pop(0), options))
        for child in [each for each in running
                      if each.process.poll() is not None]:
            running.remove(child)
            more = child.counts()
            passed, failed = passed + more[0], failed + more[1]
        time.sleep(0.1)
    return passed, failed


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("vllm", "sglang", "programs", "package", "work"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--jobs", type=int, default=3)
    parser.add_argument("--module")
    options, names = parser.parse_known_args()
    options.given = []
    for name in ("vllm", "sglang", "programs", "package", "work"):
        setattr(options, name, os.path.abspath(getattr(options, name)))
        options.given += [f"--{name}", getattr(options, name)]
    for name in ("logs", "plain"):
        setattr(options, name, os.path.join(options.work, name))
    options.model = os.path.join(options.work, "models", "small")
    options.large_model = os.path.join(options.work, "models", "large")
    os.environ["FIRNKV_BIN"] = options.programs
    sys.path[:0] = [options.package, HERE, os.path.join(HERE, "..", "python")]
    import engine
    engine.options = options
    if options.module:
        sys.exit(one_module(options.module, engine))
    for folder in (options.logs, options.plain):
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
    models(options, engine)
    alone = [name for name in names if name.startswith(ALONE)]
    together = [name for name in names if name not in alone]
    if not names:
        together, alone = MODULES, ALONE
    passed, failed = all_modules(together, options)
    for name in alone:
        child = Child(name, options)
        child.process.wait()
        more = child.counts()
        passed, failed = passed + more[0], failed + more[1]
    print(f"{passed} passed, {failed} failed")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
