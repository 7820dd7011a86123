"""The Client, with its options as keyword arguments."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from . import _core


@dataclasses.dataclass(frozen=True)
class StateContract:
    """Everything that makes KV bytes valid for one engine setting, taken from
    the engine's resolved settings. Two workers share blocks only where every
    field is equal. Texts have at most 4 KiB; all but the last two are needed.
    """

    model: str
    #: Immutable: a commit or a hash of the weights.
    weights_revision: str
    tokenizer: str
    preprocessing: str
    #: Encoding with its scaling: "rope theta=500000".
    positional: str
    #: The effective one: "bf16", "fp8_e4m3".
    kv_dtype: str
    layer_order: str
    kv_order: str
    head_grouping: str
    page_order: str
    #: Tokens of one block.
    block_tokens: int
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    context_parallel: int = 1
    #: Version of the layout that the engine writes.
    layout_version: int = 1
    #: (name, revision) of each, in the order in which they are applied.
    adapters: Sequence[tuple[str, str]] = ()
    #: The engine's own, per deployment; here also hash algorithm and seed.
    cache_salt: str = ""

    @classmethod
    def opaque(cls, what: str, block_tokens: int = 1,
               **fields) -> StateContract:
        """Of blocks whose names say all that matters: every text is `what`,
        unless `fields` says otherwise."""
        texts = {field.name: what for field in dataclasses.fields(cls)
                 if field.type == "str" and field.name != "cache_salt"}
        return cls(**{**texts, "block_tokens": block_tokens, **fields})


class Client(_core.ClientBase):
    """One worker's way into the pool. Any thread may call anything; what waits
    gives the GIL away. A context manager: leaving it closes.

    In a forked child every call is UNAVAILABLE (firnkv.Unavailable where it has
    no outcomes), and no other Client can be made (Refused): start processes by
    `spawn`, or make the first Client after the fork.
    """

    def __init__(
            self,
            socket_path: str = "/run/firnkv/node.sock",
            *,
            catalog_address: str = "",
            token: str = "",
            client_name: str = "",
            server_uid: int | None = None,
            zone: str = "",
            rack: str = "",
            host: str = "",
            connect_timeout: float = 5.0,
            wait_for_node: bool = True,
            longest_deadline: float = 60.0,
            buffer_grace: float = 0.1,
            read_lease: float = 10.0,
            reservation: float = 30.0,
            location_life: float = 5.0,
            staging_bytes: int | None = None,
            shared_bytes: int | None = None,
            bounce_bytes: int | None = None,
            max_locations: int | None = None,
            map_local_blocks: bool = True,
            call_frames: bool = True,
            check_views: bool | None = None,
            streams_per_node: int = 4,
            stream_connect_timeout: float = 1.0,
            threads: int = 2,
            log_fd: int | None = None):
        """Connects. Times are seconds, sizes bytes.

        socket_path: the local node's session socket; "" where there is none:
            then `catalog_address` ("host:port") and `token` (hex, `firnkv
            tenant token`) say where to read and write.
        client_name: for the operator's lists; at most 128 bytes.
        server_uid: uid of the node, where it is neither root nor the caller's.
        zone, rack, host: of this process; used only without a local node.
        connect_timeout: how long this call waits for the node.
        wait_for_node: False: it does not wait; calls are UNAVAILABLE until the
            node is there.
        longest_deadline: longest that a call may have; at most 120.
        buffer_grace: how much longer than its deadline a call may keep the
            caller's memory.
        read_lease, reservation: asked for with each local read, each write.
        location_life: how long a location is believed.
        staging_bytes: shared memory for writes from other memory (128 MiB).
        shared_bytes: the most that allocate_shared gives in all (4 GiB).
        bounce_bytes: for parts of blocks that a read has no room for.
        max_locations: locations kept in mind, about 160 bytes each.
        map_local_blocks: False: local blocks too come by the stream.
        call_frames: False: every control call goes as gRPC.
        check_views: views fault once closed; slow, for finding misuse.
        streams_per_node: connections to one node, besides up to 16 of threads
            in blocking calls.
        threads: of the SDK's own, for tasks and copies.
        log_fd: descriptor to write a line to when something happened that an
            operator should know, e.g. 2; None: nothing is logged.

        Raises InvalidArgument for options, Unavailable where there is no node
        in time, Denied where it does not serve this caller, Refused for
        another cluster or protocol, and in a fork of a process that had one.
        """
        arguments = dict(locals())
        del arguments["self"], arguments["__class__"]
        super().__init__(arguments)

    def open_namespace(
            self,
            name: str,
            contract: StateContract,
            *,
            create: bool = True,
            block_bytes: int = 0,
            chained: bool = True,
            retention: float = 0.0,
            strict_clear: bool = False,
            deadline: float = 5.0,
            lazy: bool = False) -> _core.Namespace:
        """The version of `name` that has exactly this contract.

        create: make it where there is none. False: Refused, which names the
            first field that differs from the newest version; NotFound where
            there is no such name.
        block_bytes: of every block; such are stored without waste. 0: any.
        chained: blocks come from a Chain. False: they have names.
        retention: seconds after which blocks are EXPIRED; 0: never.
        strict_clear: no read that begins after a clear is served.
        deadline: seconds, at most longest_deadline.
        lazy: do not wait, and never fail: the namespace opens once node and
            catalog can be asked (a call tries again, in the end once a second);
            until then its calls are UNAVAILABLE.
        """
        if not isinstance(contract, StateContract):
            raise TypeError("open_namespace: contract must be a StateContract,"
                            f" not {type(contract).__name__}")
        fields = {field.name: getattr(contract, field.name)
                  for field in dataclasses.fields(contract)}
        return self._open_namespace(
            {"name": name, "contract": fields, "create": create,
             "block_bytes": block_bytes, "chained": chained,
             "retention": retention, "strict_clear": strict_clear,
             "deadline": deadline}, not lazy)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_exception) -> None:
        self.close()
