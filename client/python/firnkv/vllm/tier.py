"""A secondary tier for vLLM's tiering offload.

    {"kv_connector": "OffloadingConnector", "kv_role": "kv_both",
     "kv_connector_extra_config": {
        "spec_name": "TieringOffloadingSpec", "cpu_bytes_to_use": 10737418240,
        "secondary_tiers": [{"type": "firnkv",
                             "socket_path": "/run/firnkv/node.sock"}]}}

Without the package's entry point: "type": "FirnKVTier", "module_path":
"firnkv.vllm.tier". A chunk, with all ranks' parts of it, is one block, named by
vLLM's key, in a namespace that is not chained. It moves between vLLM's host
memory and the node without a copy of ours.
"""

from __future__ import annotations

import ctypes
import functools
import inspect
import logging
import os
import time
from collections.abc import Iterable
from typing import Any

from .. import contracts
from .._client import StateContract
from ._session import BATCH, HashCheck, Session, good_of

try:
    from vllm.v1.kv_offload.tiering.base import JobResult, SecondaryTierManager
except ImportError:  # Without vLLM, so that the module can be read.
    SecondaryTierManager = object
    JobResult = None

try:
    from vllm.v1.kv_offload.base import LookupResult
    HIT, MISS, RETRY = (LookupResult.HIT, LookupResult.MISS,
                        LookupResult.RETRY)
except ImportError:  # Releases that said it so.
    HIT, MISS, RETRY = True, False, None

try:
    from vllm.v1.kv_offload.base import Medium, RequestOffloadingContext
except ImportError:
    Medium = None
    RequestOffloadingContext = type(None)

_log = logging.getLogger(__name__)

#: Verdicts kept in mind before those that are too old are dropped.
_MANY = 1 << 16
#: Seconds that a miss is believed: another engine may be writing it.
_MISS_LIFE = 1.0


class _Job:
    """One of vLLM's transfers, in as many calls as it needs."""

    def __init__(self, job_id: int, keys: list[bytes], load: bool):
        self.job_id = job_id
        self.keys = keys
        self.load = load
        self.good = [False] * len(keys)
        self.parts_left = 0
        self.started = time.monotonic()


class FirnKVTier(SecondaryTierManager):
    """In the scheduler's process, called by its one thread. No call but
    drain_jobs and shutdown waits for anything. Without a node every lookup is a
    miss and every job fails, by its deadline.
    """

    medium = getattr(Medium, "STORAGE", None)

    def __init__(self, offloading_spec: Any = None,
                 primary_kv_view: memoryview | None = None,
                 tier_type: str = "firnkv", *, vllm_config: Any = None,
                 backpressure_detector: Any = None,
                 socket_path: str = "/run/firnkv/node.sock",
                 namespace: str = "vllm-tier",
                 lookup_deadline: float = 0.5, load_deadline: float = 5.0,
                 store_deadline: float = 10.0, verdict_life: float = 10.0,
                 weights_revision: str | None = None,
                 contract: dict[str, Any] | None = None,
                 **client_options: Any):
        """namespace: which of the tenant's it uses.
        *_deadline: seconds that such a call may take; then its chunks are
            misses, or were not stored.
        verdict_life: seconds that a hit, or the miss of a load that failed, is
            believed.
        weights_revision, contract: fields of StateContract that vLLM does not
            say. A model that is no local folder needs the first.
        client_options: as firnkv.Client has them.
        """
        self._init_base(offloading_spec=offloading_spec,
                        vllm_config=vllm_config,
                        primary_kv_view=primary_kv_view, tier_type=tier_type,
                        backpressure_detector=backpressure_detector)
        view = primary_kv_view
        # No buffer is kept exported: vLLM releases the view after shutdown().
        self._base_address = ctypes.addressof(ctypes.c_char.from_buffer(view))
        self._row_step = view.strides[0]
        self._row_bytes = view.shape[1] * view.itemsize
        self._deadlines = {"lookup": lookup_deadline, "load": load_deadline,
                           "store": store_deadline}
        self._verdict_life = verdict_life
        fields = dict(contract or {})
        if weights_revision is not None:
            fields["weights_revision"] = weights_revision
        made = contract_of(offloading_spec, vllm_config, self._row_bytes,
                           **fields)
        self._session = Session(socket_path, "vllm tier", client_options)
        self._namespace = self._session.open(
            namespace, made, chained=False, block_bytes=self._row_bytes)
        self._hash_check = HashCheck(self._session.client, namespace, made)
        # Of each key (verdict, until when).
        self._verdicts: dict[bytes, tuple[Any, float]] = {}
        # Not asked yet; in the order in which a request has them.
        self._to_ask: dict[bytes, None] = {}
        self._jobs: set[_Job] = set()
        self._finished: list[Any] = []

    def _init_base(self, **arguments: Any) -> None:
        """Its parameters, and their names, differ from release to release."""
        base = super().__init__
        if SecondaryTierManager is object:
            return
        wanted = inspect.signature(base).parameters
        base(**{name: value for name, value in arguments.items()
                if name in wanted})

    @staticmethod
    def get_tier_type() -> str:
        return "firnkv"

    # --- What is there.

    def lookup(self, key: Any, req_context: Any = None) -> Any:
        """RETRY until the answer is there: keys are asked for in batches."""
        self._hash_check.start(_first_hash)
        self._session.poll()
        name, now = bytes(key), time.monotonic()
        verdict, until = self._verdicts.get(name, (None, 0.0))
        if now < until:
            if verdict is RETRY and name in self._to_ask:
                self._ask()  # Another pass: nobody told the end of the last.
            return verdict
        if verdict is RETRY and until > 0.0:
            verdict = MISS  # It was asked for, and never answered.
            self._to_ask.pop(name, None)
            self._say([name], MISS, _MISS_LIFE)
            return MISS
        # The SDK answers by its deadline; the rest is for an engine that polls
        # late.
        self._say([name], RETRY, self._deadlines["lookup"] + 60.0)
        self._to_ask[name] = None
        return RETRY

    def on_schedule_end(self, context: Any = None) -> None:
        self._session.poll()
        self._ask()

    def _ask(self) -> None:
        names, self._to_ask = list(self._to_ask), {}
        for at in range(0, len(names), BATCH):
            some = names[at:at + BATCH]
            self._session.submit(functools.partial(self._answered, some),
                                 self._namespace.submit_exists, some,
                                 deadline=self._deadlines["lookup"],
                                 want="every")
        if len(self._verdicts) > _MANY:
            now = time.monotonic()
            self._verdicts = {name: said
                              for name, said in self._verdicts.items()
                              if now < said[1]}

    def _answered(self, names: list[bytes], result: Any) -> None:
        for name, good in zip(names, good_of(result, len(names))):
            # A load that failed meanwhile has said MISS.
            if self._verdicts.get(name, (RETRY, 0.0))[0] is RETRY:
                if good:
                    self._say([name], HIT, self._verdict_life)
                else:
                    self._say([name], MISS, _MISS_LIFE)

    def _say(self, names: Iterable[bytes], verdict: Any, life: float) -> None:
        until = time.monotonic() + life
        for name in names:
            self._verdicts[name] = (verdict, until)

    # --- Jobs.

    def submit_store(self, job_metadata: Any) -> None:
        self._start(job_metadata, self._namespace.submit_write, load=False,
                    deadline=self._deadlines["store"])

    def submit_load(self, job_metadata: Any) -> None:
        self._start(job_metadata, self._namespace.submit_read, load=True,
                    deadline=self._deadlines["load"], want="every")

    def _start(self, metadata: Any, submit: Any, *, load: bool,
               **options: Any) -> None:
        rows = getattr(metadata, "chunk_ids", None)
        if rows is None:
            rows = metadata.block_ids
        memory = [(self._base_address + int(row) * self._row_step,
                   self._row_bytes) for row in rows]
        job = _Job(metadata.job_id, [bytes(key) for key in metadata.keys], load)
        self._jobs.add(job)
        starts = range(0, len(job.keys), BATCH)
        job.parts_left = len(starts)
        if not starts:
            self._end(job)
        for at in starts:
            self._session.submit(functools.partial(self._part_ended, job, at),
                                 submit, job.keys[at:at + BATCH],
                                 memory[at:at + BATCH], **options)

    def _part_ended(self, job: _Job, at: int, result: Any) -> None:
        count = len(job.keys[at:at + BATCH])
        job.good[at:at + count] = good_of(result, count)
        if result is not None and not all(result.good):
            _log.debug("firnkv: job %s: %s %s", job.job_id, result.why,
                       set(result.outcomes))
        job.parts_left -= 1
        if job.parts_left == 0:
            self._end(job)

    def _end(self, job: _Job) -> None:
        """No call of it uses its memory any more."""
        self._jobs.discard(job)
        good = [key for key, ok in zip(job.keys, job.good) if ok]
        if job.load:
            # Or the scheduler would ask for the same load again and again.
            self._say([key for key, ok in zip(job.keys, job.good) if not ok],
                      MISS, self._verdict_life)
        else:
            self._say(good, HIT, self._verdict_life)
        more = {"successful_keys": good if job.load else None,
                "transfer_time": time.monotonic() - job.started,
                "transfer_bytes": len(good) * self._row_bytes,
                "transfer_size": len(good) * self._row_bytes}
        known = getattr(JobResult, "__dataclass_fields__", {})
        self._finished.append(JobResult(
            job_id=job.job_id, success=all(job.good),
            **{name: value for name, value in more.items() if name in known}))

    def get_finished_jobs(self) -> list[Any]:
        """Each job once, when nothing of it can move any more."""
        self._session.poll()
        self._ask()
        finished, self._finished = self._finished, []
        return finished

    def has_pending_work(self) -> bool:
        """So that vLLM polls while no request runs."""
        return bool(self._jobs or self._finished)

    def drain_jobs(self) -> None:
        """Waits until all jobs have ended, by their deadlines; they are told by
        get_finished_jobs."""
        self._session.wait(lambda: not self._jobs)

    # --- Requests and the end.

    def on_new_request(self, req_context: Any = None) -> Any:
        return RequestOffloadingContext()

    def on_request_finished(self, req_context: Any = None) -> None:
        """Verdicts are not a request's own: nothing is kept for it."""

    def touch(self, keys: Any, req_context: Any = None) -> None:
        """FirnKV sees each read itself."""

    def shutdown(self) -> None:
        """Ends what is outstanding; then nothing moves. Idempotent."""
        self._session.close()

    # As older releases call them.
    get_finished = get_finished_jobs
    get_request_offloading_context = on_new_request
    request_finished = on_request_finished


def _first_hash() -> bytes | None:
    """What all of vLLM's block hashes start from: it depends on algorithm and
    seed. The scheduler has it before its first lookup."""
    from vllm.v1.core import kv_cache_utils
    return getattr(kv_cache_utils, "NONE_HASH", None)


def contract_of(spec: Any, vllm_config: Any, row_bytes: int,
                **fields: Any) -> StateContract:
    """Of what the release at hand tells a tier: all of vLLM's configuration, or
    its own summary of it. Raises ValueError for a model whose revision nobody
    says."""
    config = vllm_config
    for name in ("vllm_config", "_vllm_config"):
        config = config if config is not None else getattr(spec, name, None)
    summary = getattr(spec, "config", None)
    blocks = getattr(spec, "blocks_per_chunk", None)
    tokens = getattr(spec, "tokens_per_block", None)
    layout = (f"rows of {row_bytes} bytes, all ranks; {blocks} blocks of "
              f"{tokens} tokens; {getattr(summary, 'kv_cache_layout', None)}; "
              f"canonical {getattr(summary, 'canonical_layout', False)}; "
              f"replicated {getattr(summary, 'replicated_layout', False)}")
    if config is not None:
        return contracts.from_vllm(config, layout=layout, **fields)
    if summary is None:
        raise ValueError("this vLLM tells its tiers nothing of its "
                         "configuration; give contract={...} and vllm_config")
    model, parallel = summary.model, summary.parallel
    groups = [getattr(group, "tokens_per_block", None)
              for group in summary.groups]
    found = {
        "model": model.name,
        "weights_revision": contracts.weights_revision(str(model.name)),
        "tokenizer": "token ids",
        "preprocessing": "token ids and extra keys of vLLM's block hash",
        "positional": "as in the weights' revision",
        "kv_dtype": contracts.name_of_type(model.dtype),
        "layer_order": "; ".join(
            f"{len(group.layer_names)} layers" for group in summary.groups),
        "kv_order": layout,
        "head_grouping": f"{summary.worker_kv_bytes_per_block} bytes a block "
                         f"and worker",
        "page_order": layout,
        "block_tokens": max(groups) * summary.cache.blocks_per_chunk,
        "tensor_parallel": parallel.tp_size,
        "pipeline_parallel": parallel.pp_size,
        "context_parallel": parallel.dcp_size,
        # Of what _start writes: raise it where that changes.
        "layout_version": 1,
        "cache_salt": "hash of vLLM, seed " + contracts.seed_fingerprint(
            os.environ.get("PYTHONHASHSEED")),
    }
    return contracts.make(found, fields)
