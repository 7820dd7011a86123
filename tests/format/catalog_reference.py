#!/usr/bin/env python3
"""A second implementation of docs/CATALOG_SCHEMA.md, in nothing but the standard
library, that writes tests/format/golden/catalog_schema.hex. A change of the
schema edits the document, this file and the golden file in one commit:

    tests/format/catalog_reference.py           writes the golden file
    tests/format/catalog_reference.py --check   exits 1 if it differs
"""

import hashlib
import sys

from reference import (
    ANCHOR,
    KEY,
    NAMESPACE,
    PARENT,
    contract,
    counting,
    sealed,
    text,
    u8,
    u16,
    u32,
    u64,
    write_or_check,
)

VERSION = 1
NODE = counting(0xA0, 16)
OTHER_NODE = counting(0xB0, 16)
REGISTRATION = counting(0xC0, 16)
CLUSTER = counting(0xD0, 16)
RANDOM_ID = counting(0xE0, 16)
TENANT = counting(0xF0, 16)


def record(kind, fields):
    return sealed(u8(kind) + u8(VERSION) + fields)


def cluster():
    return record(
        1,
        CLUSTER
        + u64(7)  # Incarnation.
        + RANDOM_ID
        + u64(8)  # Sequence.
        + u64(4)  # Of the last accept-restore.
        + u64(1 << 24)  # Floor of sequences.
        + u64(9)  # Last change.
        + u8(1)  # Told.
        + u16(2)  # Past ones.
        + u64(4)
        + counting(0x40, 16)
        + u64(3)
        + u64(6)
        + counting(0x50, 16)
        + u64(2),
    )


def tenant():
    return record(2, TENANT + text(b"default") + u64(1_700_000_000))


def name_space():
    return record(
        3,
        NAMESPACE
        + TENANT
        + text(b"granite")
        + u32(2)  # Version.
        + u64(3)  # Clear epoch.
        + u64(65536)  # Block bytes.
        + u8(1)  # Chained.
        + u64(3600)  # Retention.
        + u8(1)  # Strict clear.
        + u8(2)  # Flash mode: canary.
        + u64(1_700_000_000)
        + u64(9)  # Changed at.
        + text(contract()),
    )


def node():
    return record(
        4,
        NODE
        + u64(0x1112131415161718)
        + text(b"10.0.0.1:7411")
        + text(b"10.0.0.1:7410")
        + text(b"zone-a")
        + text(b"rack-7")
        + text(b"host-3")
        + REGISTRATION
        + u16(2)
        + u64(21)
        + u64(22)
        + text(b"0.1.0")
        + u64(1_700_000_000),
    )


def applied():
    return record(
        5,
        REGISTRATION
        + u64(40)
        + u8(2)  # Inventory: complete.
        + u64(30)
        + u64(30)
        + u16(2)
        + (u32(5) + u8(18))  # Entry 5: cleared.
        + (u32(9) + u8(6))  # Entry 9: denied.
        + counting(0xC8, 16)  # The registration before that was kept.
        + u64(39),
    )


def entry():
    def location(node_id, epoch, serial, tier, generation):
        return (
            node_id
            + u64(epoch)
            + u64(serial)
            + u8(tier)
            + u64(generation)
            + u64(70_000)
        )

    return record(
        6,
        u64(77)  # Sequence.
        + u64(3)  # Clear epoch.
        + PARENT
        + ANCHOR
        + u32(5)
        + u32(80)
        + u32(16)
        + u16(4)
        + u16(1)
        + u16(2)
        + location(NODE, 0x1112131415161718, 30, 0, 1001)
        + location(OTHER_NODE, 0x2122232425262728, 31, 1, 1002),
    )


def backup():
    def prefixed(value):
        return u32(len(value)) + value

    body = (
        prefixed(cluster())
        + u32(1)
        + prefixed(tenant())
        + u32(1)
        + prefixed(name_space())
    )
    blob = b"FirnKV backup\0\n" + u16(1) + u64(len(body)) + body
    return blob + hashlib.sha256(blob).digest()


def render():
    out = ["# By tests/format/catalog_reference.py; see docs/CATALOG_SCHEMA.md."]
    sections = (
        ("cluster", cluster()),
        ("tenant", tenant()),
        ("namespace", name_space()),
        ("node", node()),
        ("applied", applied()),
        ("entry key", NAMESPACE + KEY),
        ("entry", entry()),
        ("backup", backup()),
    )
    for name, data in sections:
        out += ["", f"[{name}]"]
        out += [data[i : i + 32].hex() for i in range(0, len(data), 32)]
    return "\n".join(out) + "\n"


if __name__ == "__main__":
    sys.exit(write_or_check("catalog_reference.py", {"catalog_schema.hex": render()}))
