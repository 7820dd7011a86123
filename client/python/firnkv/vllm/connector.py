"""A KV connector for vLLM engines whose KV cache lies in host memory.

    {"kv_connector": "FirnKVConnector",
     "kv_connector_module_path": "firnkv.vllm.connector",
     "kv_role": "kv_both", "kv_load_failure_policy": "recompute",
     "kv_connector_extra_config": {"socket_path": "/run/firnkv/node.sock"}}

A block of a rank is one block of a chain, whose shard is the rank; it moves
between the engine's tensors and the node without a copy of ours. With the policy
"recompute" a block that is not there after all, evicted or late, is computed;
vLLM's default is "fail", which ends the request with an error.

Engines with their KV on a device use firnkv.vllm.tier; here they run, and keep
nothing. So do models with several groups of KV caches (hybrid attention), and
context parallelism.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1 import base as _base

from .. import contracts
from ._scheduler import Plan, Scheduler, first_hash
from ._session import HashCheck, Session
from ._worker import Worker
from .layout import Layout

_log = logging.getLogger("firnkv.vllm")

#: Where this vLLM has it: the hybrid memory manager may stay on.
_SupportsHMA = getattr(_base, "SupportsHMA", object)


@dataclasses.dataclass
class Metadata(_base.KVConnectorMetadata):
    """What the scheduler sends to the workers with each step."""

    plan: Plan


@dataclasses.dataclass
class Handshake(_base.KVConnectorHandshakeMetadata):
    """What each worker tells the scheduler once: only it has tensors."""

    rank: int
    layout: str
    block_bytes: int


class FirnKVConnector(_base.KVConnectorBase_V1, _SupportsHMA):
    """One in the scheduler's process and one in each worker's. The engine's step
    waits for nothing but the saves of requests that are preempted. Without a
    node everything is a miss."""

    def __init__(self, vllm_config: Any, role: Any,
                 kv_cache_config: Any = None):
        super().__init__(vllm_config, role, kv_cache_config)
        options = dict(self._kv_transfer_config.kv_connector_extra_config or {})
        self._name = options.pop("namespace", "vllm")
        self._lookup_deadline = float(options.pop("lookup_deadline", 0.5))
        self._load_deadline = float(options.pop("load_deadline", 5.0))
        self._save_deadline = float(options.pop("save_deadline", 10.0))
        self._fields = dict(options.pop("contract", None) or {})
        if "weights_revision" in options:
            self._fields["weights_revision"] = options.pop("weights_revision")
        self._block_tokens = vllm_config.cache_config.block_size
        self._unsuited = _unsuited(vllm_config, kv_cache_config)
        self._ranks = vllm_config.parallel_config.world_size
        self._handshake: Handshake | None = None
        self._worker: Worker | None = None
        self._scheduler: Scheduler | None = None
        side = role.name.lower()
        self._session = Session(
            options.pop("socket_path", "/run/firnkv/node.sock"),
            f"vllm {side}", options)
        if side == "scheduler":
            if self._unsuited:
                _log.warning("firnkv: nothing is kept: %s", self._unsuited)
            if getattr(self._kv_transfer_config, "kv_load_failure_policy",
                       "recompute") != "recompute":
                _log.warning("firnkv: kv_load_failure_policy is not recompute: "
                             "a request whose blocks are lost between match and "
                             "load fails")
            algorithm = getattr(vllm_config.cache_config,
                                "prefix_caching_hash_algo", "sha256")
            self._scheduler = Scheduler(
                self._session, self._block_tokens, self._lookup_deadline,
                functools.partial(first_hash, algorithm, self._block_tokens))

    @property
    def requires_kv_delivery(self) -> bool:
        """A save that is lost is a miss."""
        return False

    @property
    def prefer_cross_layer_blocks(self) -> bool:
        return False

    # --- The worker's.

    def register_kv_caches(self, kv_caches: dict[str, Any]) -> None:
        """ValueError for a model whose revision nobody says."""
        if self._unsuited:
            return
        try:
            layout = Layout(kv_caches, self._kv_cache_config.num_blocks)
        except ValueError as error:
            _log.warning("firnkv: nothing is kept: %s", error)
            return
        rank = self._vllm_config.parallel_config.rank % self._ranks
        self._handshake = Handshake(rank, layout.text, layout.block_bytes)
        namespace, _ = self._open(self._handshake)
        self._worker = Worker(
            self._session, namespace, layout, block_tokens=self._block_tokens,
            rank=rank, ranks=self._ranks, load_deadline=self._load_deadline,
            save_deadline=self._save_deadline)

    def get_handshake_metadata(self) -> Handshake | None:
        return self._handshake

    def bind_connector_metadata(self, connector_metadata: Any) -> None:
        super().bind_connector_metadata(connector_metadata)
        if self._worker is not None:
            self._worker.begin(connector_metadata.plan)
            # Before anything is written; releases that have handle_preemptions
            # may bind later than they call it.
            self._worker.preempted(connector_metadata.plan.preempted)

    def handle_preemptions(self, kv_connector_metadata: Any) -> None:
        """Waits for saves out of blocks that are about to be overwritten."""
        if self._worker is not None:
            self._worker.preempted(kv_connector_metadata.plan.preempted)

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        if self._worker is not None:
            self._worker.load(self._get_connector_metadata().plan)

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Loads end between steps."""

    def save_kv_layer(self, layer_name: str, kv_layer: Any, attn_metadata: Any,
                      **kwargs: Any) -> None:
        """Blocks are saved with all their layers."""

    def wait_for_save(self) -> None:
        """Starts the saves of this step's blocks, which are computed now."""
        if self._worker is not None:
            self._worker.save(self._get_connector_metadata().plan)

    def get_finished(
            self, finished_req_ids: set[str]
    ) -> tuple[set[str] | None, set[str] | None]:
        if self._worker is None:
            return None, None
        saved, received = self._worker.finished(finished_req_ids)
        return saved or None, received or None

    def get_block_ids_with_load_errors(self) -> set[int]:
        return set() if self._worker is None else self._worker.missing()

    # --- The scheduler's.

    def set_xfer_handshake_metadata(self, metadata: dict[Any, Any]) -> None:
        """Of all workers, once. Each rank has its own layout, so a namespace
        version of its own where they differ."""
        told = {each.rank: each for each in metadata.values()
                if isinstance(each, Handshake)}
        if self._scheduler is None or sorted(told) != list(range(self._ranks)):
            _log.warning("firnkv: nothing is kept: workers %s of %d are heard "
                         "of", sorted(told), self._ranks)
            return
        opened: dict[tuple[str, int], Any] = {}
        namespaces = {}
        for rank, each in sorted(told.items()):
            key = (each.layout, each.block_bytes)
            if key not in opened:
                opened[key] = self._open(each)
            namespaces[rank] = opened[key][0]
        contract = next(iter(opened.values()))[1]
        self._scheduler.ranks_are(
            namespaces, HashCheck(self._session.client, self._name, contract))

    def set_xfer_handshake_metadata_pp_aware(
            self, metadata: dict[Any, Any]) -> None:
        self.set_xfer_handshake_metadata(metadata)

    def get_num_new_matched_tokens(
            self, request: Any, num_computed_tokens: int
    ) -> tuple[int | None, bool]:
        return self._scheduler.matched(request, num_computed_tokens)

    def update_state_after_alloc(self, request: Any, blocks: Any,
                                 num_external_tokens: int) -> None:
        self._scheduler.allocated(request, blocks, num_external_tokens)

    def build_connector_meta(self, scheduler_output: Any) -> Metadata:
        return Metadata(self._scheduler.plan(scheduler_output))

    def update_connector_output(self, connector_output: Any) -> None:
        self._scheduler.told(connector_output)

    def request_finished(self, request: Any,
                         block_ids: Any) -> tuple[bool, None]:
        return self._scheduler.ended(request), None

    def request_finished_all_groups(self, request: Any,
                                    block_ids: Any) -> tuple[bool, None]:
        return self._scheduler.ended(request), None

    # --- Both.

    def shutdown(self) -> None:
        """Ends what is outstanding; then nothing moves. Idempotent."""
        self._session.close()

    def _open(self, told: Handshake) -> tuple[Any, Any]:
        contract = contracts.from_vllm(self._vllm_config, layout=told.layout,
                                       **self._fields)
        return self._session.open(
            self._name, contract, block_bytes=told.block_bytes), contract


def _unsuited(vllm_config: Any, kv_cache_config: Any) -> str:
    """Why this engine's blocks are not kept; '' where they are."""
    groups = getattr(kv_cache_config, "kv_cache_groups", None)
    if groups is None:
        return "this vLLM does not say its groups of KV caches"
    if len(groups) != 1:
        return f"the model has {len(groups)} groups of KV caches"
    kind = type(groups[0].kv_cache_spec).__name__
    if kind not in ("FullAttentionSpec", "MLAAttentionSpec",
                    "UniformTypeKVCacheSpecs"):
        return f"its blocks are those of a {kind}"
    parallel = vllm_config.parallel_config
    for name in ("decode_context_parallel_size", "prefill_context_parallel_size"):
        if getattr(parallel, name, 1) > 1:
            return f"{name} is {getattr(parallel, name)}"
    return ""
