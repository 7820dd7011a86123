"""The C++ SDK of FirnKV. Use the package firnkv, which has all of this."""

from collections.abc import Iterable, Sequence
from typing import Any, Literal, TypeAlias

from ._outcome import Outcome

#: One piece of memory: anything with the buffer protocol (numpy array,
#: memoryview, bytearray, SharedMemory), a CPU tensor of torch, or a bare
#: (address, length), which the caller keeps alive. Contiguous.
Memory: TypeAlias = Any
#: One piece that all blocks of the call share evenly; or for each block a piece
#: or a list of at most 1,024 pieces, which are filled in order.
BlockMemory: TypeAlias = Memory | Sequence[Memory | Sequence[Memory]]
#: Blocks of a chained namespace; or names (bytes or str) in one that is not.
BlockList: TypeAlias = Chain | Blocks | Iterable[bytes | str]

class Blocks:
    """Some blocks with their keys and places; never changes."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int | slice) -> Blocks: ...
    @property
    def keys(self) -> list[bytes]:
        """The 32 bytes by which the cluster knows each block."""

class Chain:
    """Block hashes of one token prefix, in its order. Grows with its
    conversation; a slice of it is Blocks."""

    def __init__(self, *, block_tokens: int, shard_index: int = 0,
                 shard_count: int = 1) -> None:
        """`shard`: which part of each position this process has (its tensor
        parallel rank, say)."""
    def append(self, hash: bytes | str) -> int:
        """Adds the next block by the engine's hash of it and all tokens before
        it, at most 4 KiB; says its position."""
    def extend(self, hashes: Iterable[bytes | str]) -> None: ...
    def __len__(self) -> int: ...
    def __getitem__(self, index: int | slice) -> Blocks: ...
    @property
    def keys(self) -> list[bytes]: ...

def unchained(names: Iterable[bytes | str], *, shard_index: int = 0,
              shard_count: int = 1) -> Blocks:
    """Blocks of a namespace that is not chained, by names of the caller's own,
    at most 4 KiB each. For blocks that are asked for again and again: a list of
    names is hashed by each call."""

class _Result:
    def __len__(self) -> int: ...
    @property
    def outcomes(self) -> list[Outcome]:
        """What became of each block, in their order."""
    @property
    def good(self) -> list[bool]:
        """Of each block: HIT, STORED or ALREADY_THERE."""
    @property
    def why(self) -> str:
        """Why the call as a whole was not made; '' where it was."""
    @property
    def invalid(self) -> bool:
        """The request itself was wrong, as `why` says. Only of submitted calls:
        others raise InvalidArgument."""
    @property
    def took(self) -> float:
        """Seconds from the call to its outcome."""

class ReadResult(_Result):
    @property
    def hits(self) -> int: ...
    @property
    def leading_hits(self) -> int:
        """How many at the front are HIT: prefill resumes there."""
    @property
    def bytes_mapped(self) -> int: ...
    @property
    def bytes_remote(self) -> int: ...
    @property
    def retry_after(self) -> float: ...

class WriteResult(_Result):
    @property
    def stored(self) -> int: ...
    @property
    def already_there(self) -> int: ...
    @property
    def bytes_stored(self) -> int: ...
    @property
    def bytes_copied(self) -> int:
        """What the SDK had to copy itself: 0 from memory of allocate_shared."""
    @property
    def retry_after(self) -> float: ...

class ExistsResult(_Result):
    @property
    def hits(self) -> int: ...
    @property
    def leading_hits(self) -> int: ...
    @property
    def lengths(self) -> list[int]:
        """Bytes of each block; 0 where it is no hit or that is not known."""

class RemoveResult(_Result):
    @property
    def removed(self) -> int: ...
    @property
    def pending(self) -> int:
        """Copies whose nodes have not yet said that they are gone."""

class Views:
    """Blocks where they lie in the local node's memory. What was read of them
    counts only where the verdict, after the last use, is HIT."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int) -> memoryview:
        """The block's bytes, read-only. LookupError where it is no hit."""
    def pieces(self, index: int) -> tuple[memoryview, ...]: ...
    @property
    def outcomes(self) -> list[Outcome]: ...
    @property
    def verdicts(self) -> list[Outcome]:
        """As close()."""
    def close(self) -> list[Outcome]:
        """Whether what was read counts, for each block. BufferError while
        arrays or memoryviews that were made of these views live."""
    @property
    def closed(self) -> bool: ...
    @property
    def why(self) -> str: ...
    @property
    def invalid(self) -> bool: ...
    @property
    def hits(self) -> int: ...
    @property
    def leading_hits(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def good_for(self) -> float:
        """Seconds after the opening in which a verdict may be HIT."""
    @property
    def retry_after(self) -> float: ...
    @property
    def took(self) -> float: ...
    def __enter__(self) -> Views: ...
    def __exit__(self, *exception: object) -> None: ...

class SharedMemory:
    """Page-aligned memory that the node maps too: a writable buffer of bytes
    (memoryview(it), numpy.frombuffer, torch.frombuffer). Writes from it cost
    the SDK no copy. Freed with the last object that uses it."""

    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    @property
    def address(self) -> int: ...

Result: TypeAlias = (ReadResult | WriteResult | ExistsResult | RemoveResult
                     | Views)

class Namespace:
    """One tenant's blocks under one state contract.

    Calls take at most 4,096 blocks, none twice, and a deadline in seconds.
    `want`: "leading" stops at the first block that is no hit (later ones are
    SKIPPED), "every" tries all. submit_ forms return at once with an id, under
    which Client.drain gives the result; memory stays the call's until then.

    InvalidArgument for a request that is out of bounds, TypeError, ValueError
    and BufferError for memory and blocks that do not fit; never for what
    becomes of a block."""

    def read(self, blocks: BlockList, into: BlockMemory, *, deadline: float,
             want: Literal["leading", "every"] = "leading") -> ReadResult:
        """Reads blocks into memory of the caller's. Memory of blocks that are
        no HIT has unspecified content."""
    def submit_read(self, blocks: BlockList, into: BlockMemory, *,
                    deadline: float,
                    want: Literal["leading", "every"] = "leading") -> int: ...
    def write(self, blocks: BlockList, source: BlockMemory, *,
              deadline: float,
              wait_for: Literal["local", "published", "flash"] = "local",
              conversation: str = "",
              session: Literal["", "will_return", "ended"] = ""
              ) -> WriteResult:
        """Writes blocks. `wait_for`: until the pool's readers can have them,
        the whole cluster's, or flash has them. `conversation` (32 bytes) and
        `session` say whether its blocks will be wanted again."""
    def submit_write(self, blocks: BlockList, source: BlockMemory, *,
                     deadline: float,
                     wait_for: Literal["local", "published", "flash"] = "local",
                     conversation: str = "",
                     session: Literal["", "will_return", "ended"] = ""
                     ) -> int: ...
    def exists(self, blocks: BlockList, *, deadline: float,
               want: Literal["leading", "every"] = "leading"
               ) -> ExistsResult:
        """Asks which blocks are there, here or elsewhere. A promise of
        nothing."""
    def submit_exists(self, blocks: BlockList, *, deadline: float,
                      want: Literal["leading", "every"] = "leading"
                      ) -> int: ...
    def remove(self, blocks: BlockList, *, deadline: float) -> RemoveResult:
        """Removes blocks: here on return, elsewhere as soon as it is told."""
    def submit_remove(self, blocks: BlockList, *, deadline: float) -> int: ...
    def views(self, blocks: BlockList, *, deadline: float,
              max_age: float = 5.0,
              want: Literal["leading", "every"] = "leading") -> Views:
        """Opens blocks where they lie in the local node's memory, for at most
        `max_age` seconds (26). Blocks of other nodes are MISS."""
    def submit_views(self, blocks: BlockList, *, deadline: float,
                     max_age: float = 5.0,
                     want: Literal["leading", "every"] = "leading"
                     ) -> int: ...
    @property
    def name(self) -> str: ...
    @property
    def chained(self) -> bool: ...
    @property
    def opened(self) -> bool:
        """Whether the cluster has confirmed it; calls are UNAVAILABLE before
        (open_namespace(lazy=True))."""
    @property
    def why(self) -> str:
        """Why it is not open; '' where it is."""
    @property
    def id(self) -> bytes | None: ...
    @property
    def digest(self) -> bytes | None: ...
    @property
    def version(self) -> int | None: ...
    @property
    def block_bytes(self) -> int: ...
    @property
    def created(self) -> bool:
        """Opening it here has made it."""

class ClientBase:
    """What firnkv.Client is made of."""

    def __init__(self, arguments: dict[str, Any]) -> None: ...
    def _open_namespace(self, arguments: dict[str, Any],
                        wait: bool) -> Namespace: ...
    def allocate_shared(self, nbytes: int) -> SharedMemory:
        """Zeroed. Exhausted over shared_bytes."""
    def drain(self, most: int = 4096) -> list[tuple[int, Result]]:
        """What has finished of the submitted calls, in that order: (id, result).
        Each once; another thread's drain gets others."""
    def completion_fd(self) -> int:
        """Readable while drain() has something. The Client's: to be waited on,
        neither read nor closed."""
    def close(self) -> None:
        """Ends what is outstanding as CANCELLED, which can still be drained.
        Idempotent."""
    def set_token(self, token: str) -> None:
        """Of a Client without a local node: another one, before the old one's
        hour is over."""
    def about(self) -> dict[str, Any]:
        """Of the local session: session, node, cluster, tenant,
        catalog_address, mapping, largest_block_bytes."""
    def stats(self) -> dict[str, Any]:
        """What this Client has done; counters never go down."""
    @property
    def forked(self) -> bool: ...

def outcomes() -> dict[str, int]:
    """Number of each outcome by its label."""
