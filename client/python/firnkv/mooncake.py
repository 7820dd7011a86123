"""The interface of Mooncake's MooncakeDistributedStore over FirnKV, so that
code written for that store runs unchanged:

    PYTHONPATH=$(python -m firnkv.compat) program-that-imports-mooncake.store

setup() takes Mooncake's arguments and uses none of those that say where its
master and its segments are: memory is the nodes'. Where the node is says the
environment variable FIRNKV_SOCKET, else setup(dict) with "firnkv_socket", else
/run/firnkv/node.sock. Return codes are Mooncake's: 0 or a length, else
negative. Nothing is raised for what becomes of a key.
"""

from __future__ import annotations

import ctypes
import dataclasses
import enum
import logging
import mmap
import os
import socket as _socket
from collections.abc import Sequence

from ._client import Client, StateContract
from ._errors import Denied, Error
from ._opening import open_soon
from ._outcome import Outcome

_log = logging.getLogger(__name__)

OK = 0
INTERNAL = -1
NO_ROOM = -200
INVALID_KEY = -400
INVALID_PARAMS = -600
NOT_READY = -703
NOT_FOUND = -704
TRANSFER_FAILED = -800
CORRUPT = -801
RPC_FAILED = -900
TIMED_OUT = -901

_CODES = {
    Outcome.HIT: OK,
    Outcome.STORED: OK,
    Outcome.ALREADY_THERE: OK,
    Outcome.MISS: NOT_FOUND,
    Outcome.EXPIRED: NOT_FOUND,
    Outcome.BEING_WRITTEN: NOT_FOUND,
    Outcome.CLEARED: NOT_FOUND,
    Outcome.CORRUPT: CORRUPT,
    Outcome.CONGESTED: NO_ROOM,
    Outcome.OVER_QUOTA: NO_ROOM,
    Outcome.WRONG_SIZE: INVALID_PARAMS,
    Outcome.UNAVAILABLE: RPC_FAILED,
    Outcome.TIMED_OUT: TIMED_OUT,
    Outcome.RESERVATION_OVER: TIMED_OUT,
    Outcome.CANCELLED: NOT_READY,
}

#: Keys of one call of the SDK, which takes up to 4,096.
_BATCH = 1024
_LONGEST_KEY = 4096
#: Seconds that setup() waits for a node, at most.
_OPEN_WAIT = 2.0


class SoftPinAction(enum.IntEnum):
    """Mooncake's; not used."""

    PRESERVE = 0
    ENABLE = 1
    DISABLE = 2


class ObjectDataType(enum.IntEnum):
    """Mooncake's; not used."""

    UNKNOWN = 0
    KVCACHE = 1
    TENSOR = 2
    WEIGHT = 3
    SAMPLE = 4
    ACTIVATION = 5
    GRADIENT = 6
    OPTIMIZER_STATE = 7
    METADATA = 8
    GENERAL = 9


@dataclasses.dataclass
class ReplicateConfig:
    """Taken and not used: FirnKV decides where copies are by what is read."""

    replica_num: int = 1
    nof_replica_num: int = 0
    dfs_replica_num: int = 0
    soft_pin_action: SoftPinAction = SoftPinAction.PRESERVE
    soft_pin_ttl_ms: int | None = None
    with_hard_pin: bool = False
    with_soft_pin: bool = False
    preferred_segment: str = ""
    preferred_segments: list = dataclasses.field(default_factory=list)
    preferred_nof_segments: list = dataclasses.field(default_factory=list)
    prefer_alloc_in_same_node: bool = False
    data_type: ObjectDataType = ObjectDataType.UNKNOWN
    group_ids: list | None = None


class BufferHandle(bytearray):
    """A value that was read: a buffer, with ptr() and size()."""

    def ptr(self) -> int:
        return ctypes.addressof(ctypes.c_char.from_buffer(self))

    def size(self) -> int:
        return len(self)


class MooncakeHostMemAllocator:
    """Plain memory of the process by its address; any will do."""

    def __init__(self):
        self._kept: dict[int, mmap.mmap] = {}

    def alloc(self, size: int) -> int:
        """0 where there is none."""
        try:
            memory = mmap.mmap(-1, size)
        except (OSError, ValueError):
            return 0
        address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        self._kept[address] = memory
        return address

    def free(self, address: int) -> int:
        """0, or INVALID_PARAMS for what is not one of alloc's."""
        return OK if self._kept.pop(address, None) else INVALID_PARAMS


class MooncakeDistributedStore:
    """Mooncake's methods, each a batch of FirnKV's. Thread-safe."""

    def __init__(self):
        self._client: Client | None = None
        self._namespace = None
        self._read_deadline = 5.0
        self._write_deadline = 20.0
        self._hostname = ""

    # --- Made and ended.

    def setup(self, local_hostname="", metadata_server="",
              global_segment_size=0, local_buffer_size=0, protocol="tcp",
              rdma_devices="", master_server_addr="", engine=None,
              enable_ssd_offload=False, ssd_offload_path="",
              tenant_id="default", enable_client_http_server=False,
              client_http_port=0, *, config=None, **_ignored) -> int:
        """0, or why it does not go. Of Mooncake's tenants each has blocks of
        its own. The first argument, or `config`, may be the dict of all.
        """
        del metadata_server, global_segment_size, local_buffer_size, protocol
        del rdma_devices, master_server_addr, engine, enable_ssd_offload
        del ssd_offload_path, enable_client_http_server, client_http_port
        options = dict(config or {})
        if isinstance(local_hostname, dict):
            options, local_hostname = dict(local_hostname), ""
        tenant = options.get("tenant_id", tenant_id)
        self._hostname = (options.get("local_hostname") or local_hostname
                          or _socket.gethostname())
        path = (os.environ.get("FIRNKV_SOCKET")
                or options.get("firnkv_socket") or "/run/firnkv/node.sock")
        name = (os.environ.get("FIRNKV_NAMESPACE")
                or options.get("firnkv_namespace") or "mooncake")
        if self._client is not None:
            return INVALID_PARAMS
        try:
            client = Client(path, client_name="mooncake facade",
                            wait_for_node=False)
        except (Error, TypeError, ValueError) as error:
            _log.error("firnkv: setup: %s", error)
            return INVALID_PARAMS
        self._client = client
        # As Mooncake's, which is ready when it returns; but for a node that is
        # away nobody waits long.
        self._namespace = open_soon(
            client, name, StateContract.opaque(
                "in the key", cache_salt=f"tenant {tenant}"),
            lambda: self._client is not client, wait=_OPEN_WAIT, chained=False)
        return OK

    def setup_dummy(self, *_arguments, **_options) -> int:
        return self.setup()

    def close(self) -> int:
        if self._client is not None:
            self._client.close()
            self._client = self._namespace = None
        return OK

    def health_check(self) -> int:
        """0: there is a node; 1: setup was not called; 2: no node."""
        if self._client is None:
            return 1
        return 0 if self._client.about().get("session") else 2

    def get_hostname(self) -> str:
        return self._hostname

    def register_buffer(self, buffer_ptr: int, size: int) -> int:
        """Nothing to do: any memory will do."""
        return OK if buffer_ptr and size > 0 else INVALID_PARAMS

    def unregister_buffer(self, buffer_ptr: int) -> int:
        return OK if buffer_ptr else INVALID_PARAMS

    # --- Writing. A key that is there is left as it is: 0.

    def put(self, key: str, value, config=None) -> int:
        return self._write([key], [[value]])[0]

    def put_parts(self, key: str, *parts, config=None) -> int:
        return self._write([key], [list(parts)])[0]

    def put_batch(self, keys, values, config=None) -> int:
        """0, or the first failure."""
        codes = self._write(keys, [[value] for value in values])
        return next((code for code in codes if code != OK), OK)

    def put_from(self, key: str, buffer_ptr: int, size: int, config=None) -> int:
        return self._write([key], [[(buffer_ptr, size)]])[0]

    def batch_put_from(self, keys, buffer_ptrs, sizes, config=None) -> list[int]:
        return self._write(keys, _pieces(buffer_ptrs, sizes))

    def batch_put_from_multi_buffers(self, keys, all_buffer_ptrs, all_sizes,
                                     config=None) -> list[int]:
        return self._write(keys, _many_pieces(all_buffer_ptrs, all_sizes))

    def upsert(self, key: str, value, config=None) -> int:
        """Not atomic: what is there is removed first."""
        self.remove(key)
        return self.put(key, value)

    def upsert_from(self, key: str, buffer_ptr: int, size: int, config=None) -> int:
        self.remove(key)
        return self.put_from(key, buffer_ptr, size)

    def upsert_parts(self, key: str, *parts, config=None) -> int:
        self.remove(key)
        return self.put_parts(key, *parts)

    def upsert_batch(self, keys, values, config=None) -> int:
        self.batch_remove(keys)
        return self.put_batch(keys, values)

    def batch_upsert_from(self, keys, buffer_ptrs, sizes,
                          config=None) -> list[int]:
        self.batch_remove(keys)
        return self.batch_put_from(keys, buffer_ptrs, sizes)

    # --- Reading.

    def get(self, key: str) -> bytes:
        """b"" where it is not there."""
        return self.get_batch([key])[0]

    def get_batch(self, keys) -> list[bytes]:
        return [b"" if one is None else bytes(one)
                for one in self._values(keys)]

    def get_buffer(self, key: str):
        """BufferHandle, or None."""
        value = self._values([key])[0]
        return None if value is None else BufferHandle(value)

    def batch_get_buffer(self, keys) -> list:
        return [None if value is None else BufferHandle(value)
                for value in self._values(keys)]

    def get_into(self, key: str, buffer_ptr: int, size: int) -> int:
        """Bytes read; the memory may be longer than the value."""
        return self._read_into([key], [[(buffer_ptr, size)]])[0]

    def batch_get_into(self, keys, buffer_ptrs, sizes) -> list[int]:
        return self._read_into(keys, _pieces(buffer_ptrs, sizes))

    def batch_get_into_multi_buffers(self, keys, all_buffer_ptrs, all_sizes,
                                     prefer_alloc_in_same_node=False) -> list[int]:
        return self._read_into(keys, _many_pieces(all_buffer_ptrs, all_sizes))

    # --- Asking and removing.

    def is_exist(self, key: str) -> int:
        return self.batch_is_exist([key])[0]

    def batch_is_exist(self, keys) -> list[int]:
        """1, 0, or negative where nobody can be asked."""
        return [{OK: 1, NOT_FOUND: 0}.get(code, code)
                for code, _ in self._lookup(keys)]

    def get_size(self, key: str) -> int:
        code, length = self._lookup([key])[0]
        return length if code == OK else code

    def remove(self, key: str, force: bool = False) -> int:
        return self.batch_remove([key])[0]

    def batch_remove(self, keys, force: bool = False) -> list[int]:
        return self._in_batches(keys, lambda some, _: [
            _code(outcome) for outcome in self._namespace.remove(
                some, deadline=self._write_deadline).outcomes])

    # --- How.

    def _in_batches(self, keys: Sequence[str], work, *columns) -> list:
        """work(some keys, some of each column) for all: a result a key. A key
        that stands twice is left to a further batch; one that no block can
        have is INVALID_KEY."""
        keys = list(keys)
        if any(len(column) != len(keys) for column in columns):
            return [INVALID_PARAMS] * len(keys)
        if self._namespace is None:
            return [NOT_READY] * len(keys)
        results: list = [INVALID_KEY] * len(keys)
        left = [i for i, key in enumerate(keys) if _is_key(key)]
        while left:
            batch: dict[str, int] = {}
            later = []
            for i in left:
                if keys[i] in batch or len(batch) == _BATCH:
                    later.append(i)
                else:
                    batch[keys[i]] = i
            some = list(batch.values())
            try:
                done = work(list(batch), [[column[i] for i in some]
                                          for column in columns])
            except (TypeError, ValueError, BufferError):
                done = [INVALID_PARAMS] * len(some)
            except Denied:
                done = [INTERNAL] * len(some)
            for i, one in zip(some, done):
                results[i] = one
            left = later
        return results

    def _write(self, keys, pieces) -> list[int]:
        def work(some, columns):
            result = self._namespace.write(some, columns[0],
                                           deadline=self._write_deadline)
            return [_code(outcome) for outcome in result.outcomes]
        return self._in_batches(keys, work, pieces)

    def _lookup(self, keys) -> list:
        """(code, length) of each."""
        def work(some, _columns):
            result = self._namespace.exists(
                some, deadline=self._read_deadline, want="every")
            return [(_code(outcome), length) for outcome, length
                    in zip(result.outcomes, result.lengths)]
        return [one if isinstance(one, tuple) else (one, 0)
                for one in self._in_batches(keys, work)]

    def _read(self, keys, pieces) -> list[int]:
        """Codes; every value has exactly the length of its pieces."""
        def work(some, columns):
            result = self._namespace.read(
                some, columns[0], deadline=self._read_deadline, want="every")
            return [_code(outcome) for outcome in result.outcomes]
        return self._in_batches(keys, work, pieces)

    def _read_into(self, keys, pieces) -> list[int]:
        """Lengths, or codes. Nearly always memory and value are of one length,
        so that is tried first; the others are asked for their length."""
        keys = list(keys)
        codes = self._read(keys, pieces)
        if len(pieces) != len(keys):
            return codes
        results = [_length(pieces[i]) if code == OK else code
                   for i, code in enumerate(codes)]
        longer = [i for i, code in enumerate(codes) if code == INVALID_PARAMS]
        if not longer:
            return results
        cut, fitting = [], []
        lengths = self._lookup([keys[i] for i in longer])
        for i, (code, length) in zip(longer, lengths):
            if code != OK:
                results[i] = code
            elif 0 < length <= _length(pieces[i]):
                cut.append(_cut(pieces[i], length))
                fitting.append((i, length))
        codes = self._read([keys[i] for i, _ in fitting], cut)
        for (i, length), code in zip(fitting, codes):
            results[i] = length if code == OK else code
        return results

    def _values(self, keys) -> list:
        """bytearray, or None, of each."""
        keys = list(keys)
        values: list = [None] * len(keys)
        found = [(i, bytearray(length)) for i, (code, length)
                 in enumerate(self._lookup(keys)) if code == OK and length]
        codes = self._read([keys[i] for i, _ in found],
                           [[memory] for _, memory in found])
        for (i, memory), code in zip(found, codes):
            if code == OK:
                values[i] = memory
        return values


def _is_key(key) -> bool:
    return isinstance(key, str) and 0 < len(key.encode()) <= _LONGEST_KEY


def _code(outcome: Outcome) -> int:
    return _CODES.get(outcome, INTERNAL)


def _pieces(ptrs, sizes) -> list:
    return [[(int(ptr), int(size))] for ptr, size in zip(ptrs, sizes)]


def _many_pieces(all_ptrs, all_sizes) -> list:
    return [[(int(ptr), int(size)) for ptr, size in zip(ptrs, sizes)]
            for ptrs, sizes in zip(all_ptrs, all_sizes)]


def _length(pieces) -> int:
    return sum(size for _, size in pieces)


def _cut(pieces, length: int) -> list:
    """The first `length` bytes of the pieces."""
    some = []
    for ptr, size in pieces:
        if length == 0:
            break
        some.append((ptr, min(size, length)))
        length -= some[-1][1]
    return some
