"""FirnKV from Python: a distributed, tiered KV cache for LLM inference.

    import firnkv

    with firnkv.Client("/run/firnkv/node.sock") as client:
        llama = client.open_namespace("llama", contract, block_bytes=1 << 20)
        chain = firnkv.Chain(block_tokens=16)
        chain.extend(engine_hashes)
        result = llama.read(chain, into=tensor, deadline=0.05)
        resume_prefill_at(result.leading_hits)

Every call is a batch, has a deadline in seconds, and says what became of each
block. docs/PYTHON.md shows every call.
"""

from ._client import Client, StateContract
from ._core import (Blocks, Chain, ExistsResult, Namespace, ReadResult,
                    RemoveResult, SharedMemory, Views, WriteResult, unchained)
from ._errors import (Cancelled, DeadlineExceeded, Denied, Error, Exhausted,
                      InvalidArgument, NotFound, Refused, Unavailable)
from ._outcome import Outcome

__all__ = [
    "Blocks", "Cancelled", "Chain", "Client", "DeadlineExceeded", "Denied",
    "Error", "Exhausted", "ExistsResult", "InvalidArgument", "Namespace",
    "NotFound", "Outcome", "ReadResult", "Refused", "RemoveResult",
    "SharedMemory", "StateContract", "Unavailable", "Views", "WriteResult",
    "unchained",
]
