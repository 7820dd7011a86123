#!/usr/bin/env python3
"""Fuzzes every decoder of outside bytes for long.

    tests/fuzz/run.py --for 10m | --count N [--seed S] [--only NAME]...

Builds the targets with libFuzzer, where clang has it, else with the plain
driver; runs all of them, as many at a time as there are processors. An input
that breaks something is kept in tests/fuzz/corpus/NAME/, where the suite runs
it from then on. Ends with "fuzz: N inputs, C crashes", and with 0 only if C is
0.
"""

import argparse
import concurrent.futures
import hashlib
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
CORPUS = ROOT / 'tests' / 'fuzz' / 'corpus'
# A target that breaks again and again is told by a few inputs as well.
MOST_CRASHES = 5
# Inputs of the plain driver between two looks at the clock.
PLAIN_BATCH = 2000
# What one input may take, seconds; the slowest here are whole nodes.
INPUT_TIMEOUT = 20
# Longest input. Decoders bound what they take at 64 KiB and more; what is
# longer only slows the search.
MOST_BYTES = 8192


def seconds(text):
    match = re.fullmatch(r'(\d+)(ms|s|m|h)', text)
    if not match:
        raise argparse.ArgumentTypeError(
            f'"{text}" is no duration: 500ms, 30s, 10m, 2h')
    return int(match[1]) * {'ms': 0.001, 's': 1, 'm': 60, 'h': 3600}[match[2]]


def has_libfuzzer():
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder) / 'x.cc'
        source.write_text('#include <cstddef>\n#include <cstdint>\n'
                          'extern "C" int LLVMFuzzerTestOneInput('
                          'const std::uint8_t*, std::size_t) { return 0; }\n')
        return subprocess.run(
            ['clang++', '-fsanitize=fuzzer,address', str(source), '-o',
             str(source.with_suffix(''))], capture_output=True,
            check=False).returncode == 0


def build(folder, kind):
    environment = dict(os.environ, CCACHE_BASEDIR=str(ROOT.parent),
                       CCACHE_NOHASHDIR='1')
    steps = [['ninja', '-C', str(folder), 'fuzz']]
    if not (folder / 'build.ninja').exists():
        steps.insert(0, ['cmake', '-S', str(ROOT), '-B', str(folder), '-G',
                         'Ninja', '-DCMAKE_C_COMPILER=clang',
                         '-DCMAKE_CXX_COMPILER=clang++',
                         f'-DFIRNKV_SANITIZE={kind}'])
    for step in steps:
        subprocess.run(step, check=True, env=environment,
                       stdout=subprocess.DEVNULL)


class Target:
    """One target, run until its share of time or inputs is used up."""

    def __init__(self, program, libfuzzer, seed):
        self.program = program
        self.name = program.name.removesuffix('_fuzz')
        self.libfuzzer = libfuzzer
        self.seed = seed
        self.inputs = 0
        self.crashes = 0
        self.report = ''

    def command(self, folder, limit, count):
        kept = CORPUS / self.name
        if self.libfuzzer:
            command = [str(self.program), f'-seed={self.seed}',
                       f'-artifact_prefix={folder}/', '-print_final_stats=1',
                       f'-timeout={INPUT_TIMEOUT}', f'-max_len={MOST_BYTES}',
                       '-rss_limit_mb=4096', str(folder / 'corpus')]
            if count is not None:
                command.append(f'-runs={max(count, 1)}')
            if limit is not None:
                command.append(f'-max_total_time={max(int(limit), 1)}')
        else:
            command = [str(self.program), '--seed', str(self.seed), '--count',
                       str(PLAIN_BATCH if count is None else count),
                       '--crash-to', str(folder / 'crash')]
        if kept.is_dir():
            command.append(str(kept))
        return command

    def run(self, limit, count):
        end = None if limit is None else time.monotonic() + limit
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            (folder / 'corpus').mkdir()
            if self.libfuzzer:
                subprocess.run([str(self.program), '--write-seeds',
                                str(folder / 'corpus')], check=True)
            while self.crashes < MOST_CRASHES:
                left = None if end is None else end - time.monotonic()
                if left is not None and left <= 0:
                    break
                wanted = None if count is None else count - self.inputs
                if wanted is not None and wanted <= 0:
                    break
                self.once(folder, left, wanted)
                self.seed += 1
        return self

    def once(self, folder, limit, count):
        done = subprocess.run(self.command(folder, limit, count),
                              capture_output=True, text=True, check=False,
                              errors='replace')
        told = re.search(r'stat::number_of_executed_units: (\d+)', done.stderr)
        if told:
            self.inputs += int(told[1])
        if done.returncode == 0:
            return
        self.crashes += 1
        if not self.report:
            self.report = done.stderr[-4000:]
        for found in folder.iterdir():
            if found.is_dir():
                continue
            bytes_ = found.read_bytes()
            kept = CORPUS / self.name / hashlib.sha1(bytes_).hexdigest()[:16]
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.write_bytes(bytes_)
            print(f'fuzz: {self.name}: {kept.relative_to(ROOT)}', flush=True)
            found.unlink()


def main():
    parser = argparse.ArgumentParser()
    bound = parser.add_mutually_exclusive_group(required=True)
    bound.add_argument('--for', dest='limit', type=seconds)
    bound.add_argument('--count', type=int)
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--only', action='append', default=[])
    parser.add_argument('--build', type=pathlib.Path, help='build folder')
    arguments = parser.parse_args()

    libfuzzer = has_libfuzzer()
    kind = 'fuzz' if libfuzzer else 'address'
    folder = arguments.build or ROOT / 'build' / kind.replace('address', 'asan')
    build(folder, kind)
    programs = sorted((folder / 'tests' / 'fuzz').glob('*_fuzz'))
    if arguments.only:
        programs = [one for one in programs
                    if one.name.removesuffix('_fuzz') in arguments.only]
    if not programs:
        print('fuzz: there is no such target')
        return 2
    workers = os.cpu_count() or 1
    rounds = -(-len(programs) // workers)
    limit = None if arguments.limit is None else arguments.limit / rounds
    count = None if arguments.count is None else -(-arguments.count //
                                                   len(programs))
    targets = [Target(program, libfuzzer, arguments.seed)
               for program in programs]
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        for target in pool.map(lambda one: one.run(limit, count), targets):
            print(f'fuzz: {target.name}: {target.inputs} inputs, '
                  f'{target.crashes} crashes', flush=True)
            if target.report:
                print(target.report)
    inputs = sum(target.inputs for target in targets)
    crashes = sum(target.crashes for target in targets)
    print(f'fuzz: {inputs} inputs, {crashes} crashes')
    return 1 if crashes else 0


if __name__ == '__main__':
    sys.exit(main())
