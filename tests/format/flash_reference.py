#!/usr/bin/env python3
"""A second implementation of docs/FLASH_FORMAT.md, in nothing but the standard
library, that writes tests/format/golden/flash.hex. A change of the format edits
the document, this file and the golden file in one commit:

    tests/format/flash_reference.py           writes the golden file
    tests/format/flash_reference.py --check   exits 1 if it differs
"""

import sys

from reference import (
    ANCHOR,
    COMMIT_TIME,
    KEY,
    LENGTH,
    NAMESPACE,
    PARENT,
    counting,
    crc32c,
    sealed,
    slot_header,
    u16,
    u32,
    u64,
    write_or_check,
)

VERSION = 1
PAGE = 4096
MIB = 1 << 20
DEVICE = counting(0xB0, 16)
CLUSTER = counting(0xD0, 16)
NODE = counting(0xA0, 16)
TENANT = counting(0xF0, 16)
LAP = 5 << 32 | 0x89ABCDEF
SEGMENT = 7


def page(content):
    content += bytes(PAGE - 4 - len(content))
    return content + u32(crc32c(content))


def align(n, to):
    return (n + to - 1) // to * to


def superblock():
    return page(
        b"FirnKVfl"
        + u16(VERSION)
        + u16(0)
        + CLUSTER
        + DEVICE
        + NODE
        + u64(3)  # Sequence.
        + u64(64 * MIB)  # Segment bytes.
        + u64(MIB)  # Largest block.
        + u64(COMMIT_TIME)  # Formatted.
        + u64(MIB)  # Where segments begin.
        + u32(16)  # Segments.
        + u32(0)
    )


def lead(magic):
    return magic + u16(VERSION) + u16(0)


def name():
    return DEVICE + TENANT + u64(LAP) + u32(SEGMENT)


def segment_header():
    return page(lead(b"FnSh") + name())


def header_bytes(length):
    return 28 + 208 + 4 * -(-length // 65536) + 4


def place(start, length):
    """Offset, payload, end, padded: of a record that may begin at `start`."""
    first = align(start, PAGE)
    payload = align(first + header_bytes(length), PAGE)
    end = align(payload + length, PAGE)
    if (end - first - length) * 64 <= length:
        return first, payload, end, True
    first = align(start, 8)
    payload = first + header_bytes(length)
    return first, payload, align(payload + length, 8), False


def record(offset, padded):
    return sealed(
        b"FnRc"
        + u16(VERSION)
        + u16(1 if padded else 0)
        + u64(LAP)
        + u32(SEGMENT)
        + u32(offset // 8)
        + u32(0)  # Key id.
        + slot_header()
    )


def entry(offset, pair, padded, key, length):
    return (
        u32(offset // 8)
        + u16(pair)
        + u16(1 if padded else 0)
        + key
        + PARENT
        + ANCHOR
        + u32(5)
        + u32(80)
        + u32(16)
        + u16(2)
        + u16(1)
        + u32(length)
    )


def places():
    """Three records, one after the other."""
    first = place(PAGE, LENGTH)
    second = place(first[2], 262_144)
    third = place(second[2], 5_000)
    return first, second, third


def contents():
    first, second, third = places()
    return sealed(
        lead(b"FnTc")
        + name()
        + u32(3)
        + u32(2)
        + u32(0)
        + NAMESPACE
        + u64(3)
        + counting(0x11, 16)
        + u64(1)
        + entry(first[0], 0, first[3], KEY, LENGTH)
        + entry(second[0], 1, second[3], counting(0x21, 32), 262_144)
        + entry(third[0], 0, third[3], counting(0x22, 32), 5_000)
    )


def seal():
    return page(
        lead(b"FnSl")
        + name()
        + u32(3)
        + u64(len(contents()))
        + u64(align(places()[2][2], PAGE))
    )


def render():
    out = ["# By tests/format/flash_reference.py; see docs/FLASH_FORMAT.md."]
    first, second, third = places()
    numbers = b"".join(
        u64(n) for one in (first, second, third) for n in (*one[:3], int(one[3]))
    )
    sections = (
        ("superblock", superblock()),
        ("segment header", segment_header()),
        ("places of three records", numbers),
        ("record header", record(first[0], first[3])),
        ("table of contents", contents()),
        ("seal", seal()),
    )
    for title, data in sections:
        out += ["", f"[{title}]"]
        out += [data[i : i + 32].hex() for i in range(0, len(data), 32)]
    return "\n".join(out) + "\n"


if __name__ == "__main__":
    sys.exit(write_or_check("flash_reference.py", {"flash.hex": render()}))
