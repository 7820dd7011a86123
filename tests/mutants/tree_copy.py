"""A copy of the source tree to put faults into, and its release build.

The build folder lies in the copy as it lies in the checkout
(<tree>/build/release), so that the compiler cache gives every file that is the
same in both.
"""

import io
import os
import shutil
import subprocess
import tarfile

BUILD = "build"


class BuildFailed(Exception):
    pass


class TreeCopy:

    def __init__(self, source, folder, jobs):
        self.source = source
        self.folder = folder
        self.jobs = jobs
        self.build = os.path.join(folder, BUILD, "release")
        self.environment = dict(os.environ, CCACHE_NOHASHDIR="1")
        # Paths below it are hashed relative to where the compiler runs.
        self.environment.setdefault("CCACHE_BASEDIR", os.path.dirname(source))

    # --- Its files.

    def _wanted_of_work_tree(self):
        names = subprocess.run(
            ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached",
             "--others", "--exclude-standard"],
            cwd=self.source, check=True, stdout=subprocess.PIPE,
            text=True).stdout
        for name in sorted(set(names.split("\0")) - {""}):
            path = os.path.join(self.source, name)
            if os.path.isfile(path):
                with open(path, "rb") as file:
                    yield name, file.read(), os.stat(path).st_mode & 0o777

    def _wanted_of(self, revision):
        archive = subprocess.run(
            ["git", "-c", "safe.directory=*", "archive", revision],
            cwd=self.source, check=True, stdout=subprocess.PIPE).stdout
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            for member in tar:
                if member.isfile():
                    yield (member.name, tar.extractfile(member).read(),
                           member.mode & 0o777)

    @staticmethod
    def _write(path, content):
        if os.path.isfile(path):
            with open(path, "rb") as file:
                if file.read() == content:
                    return
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(content)

    def refresh(self, revision=None):
        """Makes the copy what the work tree is, or a revision; touches only
        what differs."""
        wanted = set()
        files = (self._wanted_of(revision) if revision
                 else self._wanted_of_work_tree())
        for name, content, mode in files:
            wanted.add(name)
            self._write(os.path.join(self.folder, name), content)
            os.chmod(os.path.join(self.folder, name), mode)
        for folder, folders, names in os.walk(self.folder):
            if folder == self.folder and BUILD in folders:
                folders.remove(BUILD)
            for name in names:
                path = os.path.join(folder, name)
                if os.path.relpath(path, self.folder) not in wanted:
                    os.remove(path)

    # --- Its build.

    def _run(self, *command):
        run = subprocess.run(command, cwd=self.folder, env=self.environment,
                             check=False, text=True, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT)
        if run.returncode != 0:
            raise BuildFailed(run.stdout[-4000:])

    def configure(self):
        if not os.path.exists(os.path.join(self.build, "build.ninja")):
            self._run("cmake", "-S", ".", "-B", self.build, "-G", "Ninja",
                      "-DCMAKE_C_COMPILER=gcc", "-DCMAKE_CXX_COMPILER=g++")

    def make(self, *targets):
        self._run("ninja", "-C", self.build, "-j", str(self.jobs), *targets)

    def program(self, target):
        """Where the build has put the target's program."""
        for folder, _, names in os.walk(self.build):
            path = os.path.join(folder, target)
            if target in names and os.access(path, os.X_OK):
                return path
        raise BuildFailed(f"no program {target} in {self.build}")

    def keep(self, target, folder):
        """Copies the target's program into the folder."""
        os.makedirs(folder, exist_ok=True)
        return shutil.copy2(self.program(target), os.path.join(folder, target))
