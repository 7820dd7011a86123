"""vLLM keeps its KV blocks in FirnKV, in one of two ways:

- `firnkv.vllm.tier`: a secondary tier of vLLM's own tiering offload. vLLM moves
  blocks between device and host; FirnKV has what leaves the host.
- `firnkv.vllm.connector`: a KV connector, for engines whose KV cache lies in
  host memory.

docs/quickstart-vllm.md shows both. Nothing of vLLM is imported here.
"""

from __future__ import annotations

import logging

_log = logging.getLogger(__name__)


def register() -> None:
    """Makes the tier known as {"type": "firnkv"}; what the entry point in
    vLLM's group of plugins calls, once or more in each of its processes.
    Without a vLLM that has secondary tiers it does nothing."""
    try:
        from vllm.v1.kv_offload.tiering.factory import SecondaryTierFactory
    except ImportError as error:
        _log.debug("firnkv: no secondary tiers here: %s", error)
        return
    try:
        SecondaryTierFactory.register_tier("firnkv", "firnkv.vllm.tier",
                                           "FirnKVTier")
    except ValueError:
        pass  # It is registered already.
