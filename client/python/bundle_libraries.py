"""Makes an installed folder `firnkv` stand alone: every shared library that its
native part needs, and that not every Linux has, goes with it into _libs.

    bundle_libraries.py FOLDER

Under names of their own, so that the loader neither takes the engine's library
of the same name for ours nor ours for the engine's. Symbols that the loader
would make one for the whole process wherever they are loaded (STB_GNU_UNIQUE,
which g++ gives to statics of inline functions) become ordinary ones: ours stay
ours. Needs patchelf and strip.
"""

import hashlib
import os
import re
import shutil
import struct
import subprocess
import sys

# Of every Linux with a glibc at least as new as this one's.
EVERYWHERE = re.compile(
    r"(ld-linux.*|lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+))\.so.*")


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"bundle_libraries: {' '.join(command)}: {done.stderr}")
    return done.stdout


def needed(path):
    """Names in the library's own list."""
    return run("patchelf", "--print-needed", path).split()


def found_by_loader(path):
    """Name to file of all that is loaded with it."""
    found = {}
    for line in run("ldd", path).splitlines():
        match = re.match(r"\s*(\S+) => (\S+) \(", line)
        if match:
            found[match.group(1)] = match.group(2)
        elif "not found" in line:
            sys.exit(f"bundle_libraries: {path}: {line.strip()}")
    return {name: file for name, file in found.items()
            if not EVERYWHERE.fullmatch(name)}


def private_name(name, file):
    with open(file, "rb") as content:
        digest = hashlib.sha256(content.read()).hexdigest()[:8]
    stem, _, version = name.partition(".so")
    return f"{stem}-firnkv-{digest}.so{version}"


def sections(image):
    """(type, offset, size, entry size) of each section of a 64-bit ELF."""
    table, = struct.unpack_from("<Q", image, 0x28)
    size, count = struct.unpack_from("<HH", image, 0x3A)
    for i in range(count):
        at = table + i * size
        kind, = struct.unpack_from("<I", image, at + 4)
        offset, length = struct.unpack_from("<QQ", image, at + 0x18)
        entry, = struct.unpack_from("<Q", image, at + 0x38)
        yield kind, offset, length, entry


def make_ordinary(path):
    """Unique symbols of the library become global ones; how many."""
    dynsym, unique, global_ = 11, 10, 1
    with open(path, "r+b") as file:
        image = bytearray(file.read())
        if image[:6] != b"\x7fELF\x02\x01":
            sys.exit(f"bundle_libraries: {path} is no 64-bit ELF file")
        changed = 0
        for kind, offset, length, entry in sections(image):
            if kind != dynsym:
                continue
            for at in range(offset + 4, offset + length, entry):
                if image[at] >> 4 == unique:
                    image[at] = global_ << 4 | image[at] & 0xF
                    changed += 1
        file.seek(0)
        file.write(image)
    return changed


def mend(path, names, rpath):
    """Its libraries are those of `names`, and lie at `rpath`."""
    replace = []
    for name in needed(path):
        if name in names:
            replace += ["--replace-needed", name, names[name]]
    # Not in one: patchelf 0.14 then writes one's text where the other's is.
    if replace:
        run("patchelf", *replace, path)
    run("patchelf", "--set-rpath", rpath, path)
    left = [name for name in needed(path) if name in names]
    if left or run("patchelf", "--print-rpath", path).strip() != rpath:
        sys.exit(f"bundle_libraries: {path} still asks for {left}")


def bundle(folder):
    modules = [name for name in os.listdir(folder)
               if re.fullmatch(r"_core\..*so", name)]
    if len(modules) != 1:
        sys.exit(f"bundle_libraries: {folder} has {len(modules)} native parts")
    module = os.path.join(folder, modules[0])
    files = found_by_loader(module)
    # Before its tables are moved: strip would not know them afterwards.
    run("strip", "--strip-unneeded", module)
    names = {name: private_name(name, file) for name, file in files.items()}
    libraries = os.path.join(folder, "_libs")
    shutil.rmtree(libraries, ignore_errors=True)
    os.makedirs(libraries)
    unique = 0
    for name, file in files.items():
        copy = os.path.join(libraries, names[name])
        shutil.copyfile(os.path.realpath(file), copy)
        os.chmod(copy, 0o755)
        run("strip", "--strip-unneeded", copy)
        run("patchelf", "--set-soname", names[name], copy)
        mend(copy, names, "$ORIGIN")
        unique += make_ordinary(copy)
    mend(module, names, "$ORIGIN/_libs")
    size = sum(os.path.getsize(os.path.join(libraries, name))
               for name in os.listdir(libraries))
    print(f"bundle_libraries: {len(files)} libraries, {size / 1e6:.1f} MB, "
          f"{unique} unique symbols made ordinary")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    bundle(sys.argv[1])
