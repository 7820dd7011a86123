#!/usr/bin/env python3
"""A second implementation of docs/PROTOCOL.md, in nothing but the standard
library, that writes tests/format/golden/*.hex, and a reader of proto/*.proto
that lists every number in tests/format/golden/fields.txt.

The golden files are so what the document says and not what our encoders happen
to do. A format change edits the document, this file and the golden files in one
commit:

    tests/format/reference.py           writes the golden files
    tests/format/reference.py --check   exits 1 if they differ from it
"""

import hashlib
import hmac
import pathlib
import re
import struct
import sys

HERE = pathlib.Path(__file__).resolve().parent
GOLDEN = HERE / "golden"
PROTO = HERE.parent.parent / "proto"


def u8(n):
    return struct.pack("<B", n)


def u16(n):
    return struct.pack("<H", n)


def u32(n):
    return struct.pack("<I", n)


def u64(n):
    return struct.pack("<Q", n)


def counting(first, size):
    return bytes((first + i) % 256 for i in range(size))


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def sealed(body):
    return body + u32(crc32c(body))


# --- Keys and anchors.


def block_key(chain_hash, shard):
    preimage = b"FirnKV block key v1\0" + u32(len(chain_hash)) + chain_hash
    if shard is None:
        preimage += u8(0)
    else:
        count, index = shard
        preimage += u8(1) + u16(count) + u16(index)
    return hashlib.sha256(preimage).digest()


def keys():
    for name, chain_hash, shard in (
        ("handshake test vector", b"FirnKV", (7, 3)),
        ("empty hash, shard 0 of 1", b"", (1, 0)),
        ("empty hash, anchor", b"", None),
        ("8 bytes, shard 0 of 1", counting(1, 8), (1, 0)),
        ("8 bytes, shard 1 of 2", counting(1, 8), (2, 1)),
        ("8 bytes, anchor", counting(1, 8), None),
        ("32 bytes, shard 0 of 1", counting(0, 32), (1, 0)),
        ("32 bytes, anchor", counting(0, 32), None),
        ("text, shard 0 of 8", b"sha256:5feceb66ffc86f38", (8, 0)),
        ("4096 bytes, shard 0 of 1", counting(0, 4096), (1, 0)),
    ):
        yield name, block_key(chain_hash, shard)


# --- State contracts.

TEXTS = (
    b"meta-llama/Llama-3.1-8B",
    b"d04e592bb4f6aa9cfee91e2e20afa771667e1d4b",
    b"llama-3.1@d04e592b",
    b"none",
    b"rope theta=500000 llama3 factor=8",
    b"bf16",
    b"layers,kv,tokens,heads,dim",
    b"k-then-v",
    b"8 kv heads",
    b"ascending",
)
NUMBERS = (16, 2, 1, 1, 1)


def text(value):
    return u32(len(value)) + value


def contract(adapters=(), salt=b""):
    out = b"FirnKV state contract\0" + u16(1)
    for tag, value in enumerate(TEXTS, start=1):
        out += u16(tag) + text(value)
    for tag, value in enumerate(NUMBERS, start=11):
        out += u16(tag) + text(u32(value))
    if adapters:
        value = u32(len(adapters))
        for name, revision in adapters:
            value += text(name) + text(revision)
        out += u16(16) + text(value)
    if salt:
        out += u16(17) + text(salt)
    return out


def contracts():
    plain = contract()
    options = contract(
        ((b"legal", b"r7"), (b"german", b"2024-05-01")), b"deployment 12"
    )
    yield "sample", plain
    yield "digest of sample", hashlib.sha256(plain).digest()
    yield "sample with options", options
    yield "digest of sample with options", hashlib.sha256(options).digest()


# --- Slot headers.

LENGTH = 70_000
GENERATION = 0x0102030405060708
COMMIT_TIME = 1_700_000_000_123_456_789
PIECES = (0x11223344, 0x55667788)
NAMESPACE = counting(0x10, 16)
KEY = counting(0x20, 32)
DIGEST = counting(0x40, 32)
PARENT = counting(0x60, 32)
ANCHOR = counting(0x80, 32)


def slot_header():
    body = u16(1) + u16(0)
    body += NAMESPACE + u64(3) + KEY + DIGEST + PARENT + ANCHOR
    body += u32(5) + u32(80) + u32(16) + u16(2) + u16(1)
    body += u64(LENGTH) + u64(GENERATION) + u64(COMMIT_TIME)
    body += u32(len(PIECES)) + b"".join(map(u32, PIECES))
    return sealed(u32(4 + len(body) + 4) + body)


def mapped_table():
    """A region of 64 pages; the sample at page 3; page 40 bumped to 9."""
    yield "lead", bytes.fromhex("01006669726e766b") + u32(1) + u32(64) + u64(
        0xABCDEF
    ) + u64(7)
    words = u64(GENERATION) + NAMESPACE + u64(3) + KEY + DIGEST + PARENT
    words += ANCHOR + u32(5) + u32(80) + u32(16) + u16(2) + u16(1)
    words += u64(LENGTH) + u64(COMMIT_TIME)
    pieces = b"".join(map(u32, PIECES))
    words += u64(crc32c(words + pieces))
    yield "header of page 3", (u64(2) + words).ljust(256, b"\0")
    yield "pieces of page 3", pieces
    yield "header of page 40", (u64(4) + u64(9)).ljust(256, b"\0")


# --- Tokens.


def tokens():
    claims = u8(2) + u8(1) + u16(0) + counting(1, 16) + counting(2, 16)
    claims += counting(3, 16) + u64(1_700_003_600_000_000)
    claims += u64(6)
    mac = hmac.new(
        counting(0xA0, 32), b"FirnKV token v2\0" + claims, hashlib.sha256
    ).digest()
    yield "tenant", claims + mac


# --- Frames.


def lead(kind, request, body, payload):
    return sealed(
        b"FrnK" + u16(1) + u16(kind) + u64(request) + u64(payload) + u32(body)
    )


def frames():
    yield "lead of a block", lead(4, 0x1122334455667788, 300, LENGTH)
    yield "lead of a cancel", lead(6, 5, 0, 0)
    yield "hello", sealed(
        u32(1)
        + u32(2)
        + counting(1, 16)
        + block_key(b"FirnKV", (7, 3))
        + counting(0x30, 16)
        + u64(0x99)
        + text(b"a token")
    )
    # PERMISSION_DENIED is 7.
    yield "refused", sealed(u32(7) + text(b"not yours"))
    yield "read", sealed(
        u32(1)
        + u32(3)
        + u64(250_000)
        + counting(0x50, 16)
        + counting(0x70, 16)
        + NAMESPACE
        + u64(3)
        + u32(1)
        + u32(2)
        + KEY
        + u64(LENGTH)
        + counting(0x21, 32)
        + u64(1)
    )
    yield "block, hit", sealed(u32(1) + u32(1) + u64(0) + slot_header())
    yield "block, congested", sealed(u32(2) + u32(9) + u64(20_000))
    yield "found corrupt", sealed(NAMESPACE + KEY + u64(9))
    yield "lead of a write", lead(10, 5, 52, LENGTH)
    yield "reserve", sealed(
        u32(2)
        + u32(2)
        + u64(250_000)
        + counting(0x50, 16)
        + bytes(16)
        + NAMESPACE
        + u64(3)
        + u64(30_000_000)
        + u32(1)
        + u32(2)
        + text(b"chat 7")
        + u32(1)
        + KEY
        + PARENT
        + ANCHOR
        + u32(5)
        + u32(80)
        + u32(16)
        + u16(2)
        + u16(1)
        + u64(LENGTH)
    )
    # kStored is 14, kAlreadyThere 15, kCongested 9.
    yield "reserved", sealed(
        u32(0) + text(b"") + u64(29_000_000) + u64(20_000) + u64(4)
        + u32(3) + bytes((14, 15, 9))
    )
    # INVALID_ARGUMENT is 3.
    yield "reserved, refused", sealed(
        u32(3) + text(b"a key twice") + u64(0) + u64(0) + u64(4) + u32(0)
    )
    yield "write", sealed(u32(1) + KEY + u32(2) + b"".join(map(u32, PIECES)))
    yield "written", sealed(
        u64(20_000) + u32(2) + u32(1) + u8(14) + u32(0) + u8(9)
    )


# --- Calls of a local session as frames.


def call_header():
    return u32(1) + u32(3) + u64(250_000) + counting(0x50, 16) + counting(0x70, 16)


def extents(*places):
    return u8(len(places)) + b"".join(u64(n) for place in places for n in place)


TWO_EXTENTS = ((7, 4096, 65_536), (8, 0, 4_464))


def session_frames():
    release = sealed(counting(0x70, 16) + u32(2) + u64(5) + u64(6))
    yield "packet of a release", lead(22, 9, len(release), 0) + release
    yield "open read", sealed(
        call_header()
        + NAMESPACE
        + u64(3)
        + u32(3)
        + u64(10_000_000)
        + u32(2)
        + KEY
        + counting(0x21, 32)
    )
    yield "opened", sealed(
        u64(0x1122334455667788)
        + u64(10_000_000)
        + u64(3)
        + u64(20_000)
        + u32(2)
        + u8(1)
        + u64(GENERATION)
        + extents(*TWO_EXTENTS)
        + u8(9)
    )
    yield "reserve", sealed(
        call_header()
        + NAMESPACE
        + u64(3)
        + u64(30_000_000)
        + u32(1)
        + u32(2)
        + text(b"chat 12")
        + u32(1)
        + KEY
        + PARENT
        + ANCHOR
        + u32(5)
        + u32(80)
        + u32(16)
        + u16(2)
        + u16(1)
        + u64(LENGTH)
    )
    yield "reserved", sealed(
        u64(0x123) + u64(30_000_000) + u64(3) + u64(0) + u32(2) + bytes((14, 15))
    )
    yield "commit", sealed(
        call_header()
        + u64(0x123)
        + u32(1)
        + u32(1)
        + u32(4)
        + extents(*TWO_EXTENTS)
        + b"".join(map(u32, PIECES))
    )
    yield "committed", sealed(u64(20_000) + u32(2) + bytes((14, 9)))


# --- Messages: one of columns, by protobuf's own encoding.


def varint(n):
    out = b""
    while n >= 0x80:
        out += u8(n & 0x7F | 0x80)
        n >>= 7
    return out + u8(n)


def field(number, value):
    return varint(number << 3 | 2) + varint(len(value)) + value


def messages():
    yield "BlockColumns of two blocks", (
        field(1, KEY + counting(0x21, 32))
        + field(2, PARENT + KEY)
        + field(3, ANCHOR + ANCHOR)
        + field(4, varint(5) + varint(6))
        + field(5, varint(80) + varint(96))
        + field(6, varint(16) + varint(16))
        + field(7, varint(LENGTH) + varint(LENGTH))
        + field(8, varint(2) + varint(2))
        + field(9, varint(1) + varint(1))
    )
    yield "outcomes hit, miss, already there", bytes((1, 2, 15))


FILES = {
    "keys.hex": keys,
    "contract.hex": contracts,
    "slot_header.hex": lambda: (("sample", slot_header()),),
    "mapped_table.hex": mapped_table,
    "token.hex": tokens,
    "frame.hex": frames,
    "session_frame.hex": session_frames,
    "messages.hex": messages,
}


PROTOS = ("types", "session", "node", "catalog", "admin")
OPENED = re.compile(r"(message|enum|oneof|service) (\w+) {(})?")
FIELD = re.compile(r"(repeated )?([\w.]+) (\w+) = (\d+)( \[.*\])?;")
VALUE = re.compile(r"(\w+) = (\d+);")
METHOD = re.compile(r"rpc (\w+)\((\w+)\)\s*returns \((\w+)\)")


def numbers_of(name):
    """One line a field, enumerator and method, as contract_numbers_test.cc
    lists them. Knows the few constructs that our files use."""
    source = re.sub(r"//.*", "", (PROTO / f"{name}.proto").read_text())
    out = [f"# proto/{name}.proto"]
    open_scopes, fields, values = [], [], []
    for line in map(str.strip, source.splitlines()):
        scope = open_scopes[-1][0] if open_scopes else ""
        if found := OPENED.fullmatch(line):
            if not found[3]:
                open_scopes.append((found[1], found[2]))
        elif line == "}":
            kind, what = open_scopes.pop()
            if kind == "message":
                fields.sort()
                out += [f"{what} {number} {rest}" for number, rest in fields]
                out += [f"{what}.{value}" for value in values]
                fields, values = [], []
        elif scope == "enum" and (found := VALUE.fullmatch(line)):
            values.append(f"{open_scopes[-1][1]} {found[2]} {found[1]}")
        elif found := FIELD.fullmatch(line):
            kind = (found[1] or "") + found[2]
            fields.append((int(found[4]), f"{found[3]} {kind}"))
    for service in re.finditer(r"service (\w+) {", source):
        body = source[service.end() : source.index("\n}", service.end())]
        for method in METHOD.finditer(body):
            out.append(
                f"/firnkv.v1.{service[1]}/{method[1]} {method[2]} {method[3]}"
            )
    return out


def render(sections):
    out = ["# Written by tests/format/reference.py; see docs/PROTOCOL.md."]
    for name, data in sections:
        out += ["", f"[{name}]"]
        out += [data[i : i + 32].hex() for i in range(0, len(data), 32)]
    return "\n".join(out) + "\n"


def write_or_check(script, files):
    """Writes golden files, or, with --check, says which of them differ; the
    process's exit status."""
    check = sys.argv[1:] == ["--check"]
    differing = 0
    for name, wanted in files.items():
        path = GOLDEN / name
        if check and (not path.exists() or path.read_text() != wanted):
            print(f"{path} is not what {script} writes")
            differing += 1
        elif not check:
            path.write_text(wanted)
    return 1 if differing else 0


def main():
    files = {name: render(sections()) for name, sections in FILES.items()}
    lines = [line for name in PROTOS for line in numbers_of(name)]
    files["fields.txt"] = "\n".join(lines) + "\n"
    return write_or_check("reference.py", files)


if __name__ == "__main__":
    sys.exit(main())
