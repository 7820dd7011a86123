"""The connector's part in the scheduler's process: which blocks are there, and
what the workers are to load and to save."""

from __future__ import annotations

import dataclasses
import functools
import logging
import time
from typing import Any

from .. import contracts
from .._core import Chain
from ._session import BATCH, HashCheck, Session, good_of

_log = logging.getLogger("firnkv.vllm")


@dataclasses.dataclass
class Plan:
    """What the workers do in one step; small, since it is sent to each."""

    #: By request: (how many hashes were sent before, those that follow).
    chains: dict[str, tuple[int, list[bytes]]] = dataclasses.field(
        default_factory=dict)
    #: (request, position of the first block, the engine's block ids).
    loads: list[tuple[str, int, list[int]]] = dataclasses.field(
        default_factory=list)
    saves: list[tuple[str, int, list[int]]] = dataclasses.field(
        default_factory=list)
    #: Their blocks are about to be used by others.
    preempted: list[str] = dataclasses.field(default_factory=list)
    #: Ended, and their blocks wait for the workers' word.
    ended: list[str] = dataclasses.field(default_factory=list)


class _Request:
    """Of one request, from its first allocation to its end."""

    def __init__(self, request: Any):
        self.request = request
        self.block_ids: list[int] = []
        #: Of the load in flight: its engine block ids, from which position on.
        self.loading: tuple[int, list[int]] | None = None
        #: So many blocks need no saving; so many hashes are the workers'.
        self.saved = 0
        self.hashes_sent = 0
        self.any_saves = False
        self.scheduled = False


class _Lookup:
    """Which of a request's blocks all ranks have."""

    def __init__(self, start: int, limit: int, until: float):
        self.start = start
        self.limit = limit
        self.until = until
        self.left = 0
        self.good: dict[int, list[bool]] = {}

    def hits(self) -> int | None:
        """None while answers are missing."""
        if self.left:
            return None
        return min(good.index(False) if False in good else len(good)
                   for good in self.good.values())


class Scheduler:
    """Called by the scheduler's one thread; waits for nothing."""

    def __init__(self, session: Session, block_tokens: int,
                 lookup_deadline: float, first_hash: Any):
        self._session = session
        self._block_tokens = block_tokens
        self._deadline = lookup_deadline
        self._first_hash = first_hash
        self._namespaces: dict[int, Any] = {}
        self._hash_check: HashCheck | None = None
        self._lookups: dict[str, _Lookup] = {}
        self._requests: dict[str, _Request] = {}
        self._to_load: list[tuple[str, int, list[int]]] = []
        self._ended: list[str] = []
        # A load of theirs has failed: they are computed.
        self._given_up: set[str] = set()

    def ranks_are(self, namespaces: dict[int, Any],
                  hash_check: HashCheck) -> None:
        """Of each rank the namespace that its worker uses. Nothing is looked
        up, loaded or saved before."""
        self._namespaces = namespaces
        self._hash_check = hash_check

    # --- Which blocks are there.

    def matched(self, request: Any, computed: int) -> tuple[int | None, bool]:
        """Tokens after the first `computed` that every rank can load; None while
        that is asked."""
        self._session.poll()
        rid, tokens = request.request_id, self._block_tokens
        if not self._namespaces or rid in self._given_up or computed % tokens:
            return 0, False
        self._hash_check.start(self._first_hash)
        start = computed // tokens
        # One token at least is vLLM's to compute.
        limit = min(len(request.block_hashes), (request.num_tokens - 1) // tokens)
        if limit <= start:
            return 0, False
        lookup = self._lookups.get(rid)
        if lookup is None or (lookup.start, lookup.limit) != (start, limit):
            lookup = self._lookups[rid] = self._ask(request, start, limit)
        hits = lookup.hits()
        if hits is None and time.monotonic() < lookup.until:
            return None, False
        return (hits or 0) * tokens, bool(hits)

    def _ask(self, request: Any, start: int, limit: int) -> _Lookup:
        # The SDK answers by its deadline: the rest is for a step that is late.
        lookup = _Lookup(start, limit,
                         time.monotonic() + self._deadline + 60.0)
        hashes = [bytes(each) for each in request.block_hashes[:limit]]
        for rank, namespace in self._namespaces.items():
            chain = Chain(block_tokens=self._block_tokens, shard_index=rank,
                          shard_count=len(self._namespaces))
            chain.extend(hashes)
            lookup.good[rank] = [False] * (limit - start)
            for at in range(start, limit, BATCH):
                to = min(at + BATCH, limit)
                lookup.left += 1
                self._session.submit(
                    functools.partial(_answered, lookup, rank, at - start,
                                      to - at),
                    namespace.submit_exists, chain[at:to],
                    deadline=self._deadline)
        return lookup

    def allocated(self, request: Any, blocks: Any, external: int) -> None:
        """vLLM has room for `external` of the tokens that matched() said."""
        rid = request.request_id
        state = self._requests.setdefault(rid, _Request(request))
        lookup = self._lookups.pop(rid, None)
        if not external or lookup is None:
            return
        count = external // self._block_tokens
        ids = [int(each) for each in
               blocks.get_block_ids()[0][lookup.start:lookup.start + count]]
        state.loading = (lookup.start, ids)
        state.saved = max(state.saved, lookup.start + count)
        self._to_load.append((rid, lookup.start, ids))

    # --- What the workers do.

    def plan(self, output: Any) -> Plan:
        """Of the step that `output` schedules."""
        plan = Plan(preempted=sorted(getattr(output, "preempted_req_ids", None)
                                     or ()))
        plan.ended, self._ended = self._ended, []
        loads, self._to_load = self._to_load, []
        for rid, start, ids in loads:
            state = self._requests.get(rid)
            if state is not None:
                self._send_hashes(plan, rid, state, start + len(ids))
                plan.loads.append((rid, start, ids))
        for new in output.scheduled_new_reqs:
            state = self._requests.get(new.req_id)
            if state is not None:
                state.block_ids = list(new.block_ids[0])
                self._save(plan, new.req_id, state, new.num_computed_tokens,
                           output)
        self._plan_running(plan, output)
        return plan

    def _plan_running(self, plan: Plan, output: Any) -> None:
        running = output.scheduled_cached_reqs
        resumed = getattr(running, "resumed_req_ids", None)
        if resumed is None:
            resumed = {rid for rid, yes in zip(
                running.req_ids, getattr(running, "resumed_from_preemption",
                                         ())) if yes}
        for i, rid in enumerate(running.req_ids):
            state = self._requests.get(rid)
            if state is None:
                continue
            added = running.new_block_ids[i]
            if rid in resumed:
                state.block_ids = []
            if added:
                state.block_ids += added[0]
            self._save(plan, rid, state, running.num_computed_tokens[i], output)

    def _save(self, plan: Plan, rid: str, state: _Request, computed: int,
              output: Any) -> None:
        """Blocks that this step fills, as far as their hashes are known."""
        if not self._namespaces:
            return
        request, tokens = state.request, self._block_tokens
        full = min((computed + output.num_scheduled_tokens.get(rid, 0)) // tokens,
                   len(request.block_hashes), len(state.block_ids))
        publishable = getattr(request, "num_publishable_block_hashes", None)
        if publishable is not None:
            full = min(full, publishable)
        if not state.scheduled:
            state.scheduled = True
            # What was found in the engine's own cache was saved when it was
            # computed.
            state.saved = max(state.saved, computed // tokens)
        if full <= state.saved:
            return
        self._send_hashes(plan, rid, state, full)
        plan.saves.append((rid, state.saved, state.block_ids[state.saved:full]))
        state.saved = full
        state.any_saves = True

    def _send_hashes(self, plan: Plan, rid: str, state: _Request,
                     upto: int) -> None:
        if upto <= state.hashes_sent:
            return
        first, before = plan.chains.get(rid, (state.hashes_sent, []))
        more = [bytes(each) for each in
                state.request.block_hashes[state.hashes_sent:upto]]
        plan.chains[rid] = (first, before + more)
        state.hashes_sent = upto

    # --- What has become of it.

    def told(self, output: Any) -> None:
        """Of a step's loads: those with blocks that are not there are not looked
        up again, and are saved once they were computed."""
        invalid = getattr(output, "invalid_block_ids", None) or set()
        received = getattr(output, "finished_recving", None) or set()
        for rid, state in self._requests.items():
            if state.loading is None:
                continue
            start, ids = state.loading
            bad = [i for i, each in enumerate(ids) if each in invalid]
            if bad:
                self._given_up.add(rid)
                state.saved = min(state.saved, start + bad[0])
            if rid in received:
                state.loading = None

    def ended(self, request: Any) -> bool:
        """Whether its blocks are in use until the workers say that it was
        saved."""
        rid = request.request_id
        self._lookups.pop(rid, None)
        self._given_up.discard(rid)
        state = self._requests.pop(rid, None)
        # One that is loading is freed by the end of its load; its earlier saves
        # were waited for when it was preempted.
        if state is None or not state.any_saves or state.loading is not None:
            return False
        self._ended.append(rid)
        return True


def _answered(lookup: _Lookup, rank: int, at: int, count: int,
              result: Any) -> None:
    lookup.good[rank][at:at + count] = good_of(result, count)
    lookup.left -= 1


def first_hash(algorithm: str, block_tokens: int) -> bytes | None:
    """vLLM's hash of the block that processes compare; or what all its hashes
    start from."""
    from vllm.v1.core import kv_cache_utils
    try:
        from vllm.utils.hashing import get_hash_fn_by_name
        return bytes(kv_cache_utils.hash_block_tokens(
            get_hash_fn_by_name(algorithm), None,
            contracts.PROBE_TOKENS[:block_tokens], None))
    except (ImportError, AttributeError, TypeError, ValueError):
        return getattr(kv_cache_utils, "NONE_HASH", None)
