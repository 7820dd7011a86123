#!/usr/bin/env python3
"""Checks who may include whom.

    proto -> client -> server -> tools -> tests          (left = lower)
    server: base -> policy -> io -> tier -> {node | catalog | mover} -> bin

A file includes only what stands to its left. Two cuts: server includes of
client only client/transport, tools include of server only server/policy.
Outside libraries stay in the few files that BOUNDARIES names. tests/ and
tools/bench/limits/ are exempt from the boundaries, not from the order.
"""

import re
import sys

from tree import TOP_FOLDERS, tree_from_command_line, without_comments

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
RANK = {folder: rank for rank, folder in enumerate(TOP_FOLDERS)}
SERVER_RANK = {"base": 0, "policy": 1, "io": 2, "tier": 3, "node": 4,
               "catalog": 4, "mover": 4, "bin": 5}
BOUNDARY_EXEMPT = ("tests/", "tools/bench/limits/")

# What is included, the only paths that may, and the advice.
GENERATED = (r"(.*/)?\w+_(service|client|messages)\.cc"
             r"|(.*/)?(catalog_link|session)\w*\.cc"
             r"|proto/(convert\w*\.(h|cc)|protobuf_log\.cc)|tools/firnkv/.*")
GRPC = r"(client/transport|server/base)/grpc_\w+\.(h|cc)"
BOUNDARIES = [
    (r".*\.pb\.h", GENERATED,
     "generated messages stay in *_service.cc, *_client.cc, *_messages.cc, "
     "catalog_link*.cc, session*.cc, proto/convert and tools/firnkv"),
    (r"google/protobuf/.*", GENERATED + "|" + GRPC,
     "protobuf stays where generated messages may be included"),
    (r"(grpc|grpcpp|grpc\+\+)/.*", GRPC,
     "gRPC stays in grpc_* of client/transport and server/base"),
    (r"rocksdb/.*", r"server/catalog/rocks_store\.(h|cc)",
     "RocksDB stays in server/catalog/rocks_store"),
    (r"(ucp|ucs|uct)/.*", r"client/transport/.*",
     "UCX stays in client/transport"),
    (r"liburing(/.*|\.h)", r"(server/io|client/transport)/.*",
     "liburing stays in server/io and client/transport"),
    (r"(yaml-cpp|spdlog|prometheus)/.*|httplib\.h", r"server/base/.*|tools/.*",
     "this library stays in server/base"),
    (r"CLI/.*", r"server/bin/.*|tools/.*",
     "command lines are read in server/bin and tools"),
    (r"(isa-l|openssl)/.*|isa-l\.h", r"(proto/base|client/transport)/.*",
     "checksums and digests are taken through proto/base"),
    (r"pybind11/.*|Python\.h", r"client/python/.*",
     "Python is spoken in client/python"),
    (r"(gtest|gmock)/.*", r"tests/.*", "test libraries stay in tests"),
]


def order_violation(path, included):
    """Why `path` must not include the project's file `included`, or None."""
    source, target = path.split("/"), included.split("/")
    if RANK[target[0]] > RANK[source[0]]:
        return f"{source[0]} includes {target[0]}, which stands to its right"
    if path.startswith("proto/base/") and not included.startswith(
            "proto/base/"):
        return "proto/base includes something outside proto/base"
    for part in ("client/transport/", "client/plan/"):
        if (path.startswith(part) and target[0] == "client"
                and not included.startswith(part)):
            return f"{part[:-1]} includes {included}, which is built upon it"
    if source[0] == "server" and target[0] == "client":
        if not included.startswith("client/transport/"):
            return ("server includes of client only client/transport, "
                    f"not {included}")
    if (source[0] == "tools" and target[0] == "server"
            and not included.startswith("server/policy/")
            and not path.startswith(BOUNDARY_EXEMPT)):
        return f"tools include of server only server/policy, not {included}"
    if source[0] == target[0] == "server":
        return server_violation(source, target)
    return None


def server_violation(source, target):
    mine, theirs = source[1], target[1]
    if mine == theirs:
        return None
    if mine not in SERVER_RANK or theirs not in SERVER_RANK:
        return f"server/{mine} or server/{theirs} has no place in the order"
    if SERVER_RANK[theirs] == SERVER_RANK[mine]:
        return f"server/{mine} and server/{theirs} never meet but in bin"
    if SERVER_RANK[theirs] > SERVER_RANK[mine]:
        return (f"server/{mine} includes server/{theirs}, "
                "which stands to its right")
    return None


def boundary_violation(path, included):
    """The advice of the boundary that the include crosses, or None."""
    if path.startswith(BOUNDARY_EXEMPT):
        return None
    for pattern, allowed, advice in BOUNDARIES:
        if re.fullmatch(pattern, included):
            if not re.fullmatch(allowed, path):
                return advice
            return None
    return None


def check_include(tree, path, number, quoted, included):
    if quoted and "/" not in included:
        tree.report(path, number, f'"{included}" is no path from the root',
                    "include it as \"folder/file.h\", an outside one in <>")
    boundary = boundary_violation(path, included)
    if boundary:
        tree.report(path, number, f"includes {included}", boundary)
    if included.split("/")[0] in RANK and "/" in included:
        order = order_violation(path, included)
        if order:
            tree.report(path, number, order,
                        "move the shared code to the leftmost folder that "
                        "needs it")


def main():
    tree, _ = tree_from_command_line(__doc__)
    for path in tree.sources(".h", ".cc"):
        code = without_comments(tree.read(path), keep_strings=True)
        for number, line in enumerate(code.split("\n"), 1):
            match = INCLUDE.match(line)
            if match:
                check_include(tree, path, number, match.group(1) == '"',
                              match.group(2))
    return tree.finish()


if __name__ == "__main__":
    sys.exit(main())
