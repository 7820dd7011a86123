"""The connector's part in a worker's process: moves blocks between the engine's
KV tensors and the node."""

from __future__ import annotations

import collections
import functools
import logging
from collections.abc import Iterable
from typing import Any

from .._core import Chain
from ._scheduler import Plan
from ._session import BATCH, Session, good_of
from .layout import Layout

_log = logging.getLogger("firnkv.vllm")


class Worker:
    """Called by the thread that runs the engine's step. Only preempted() waits,
    by the deadline of a save."""

    def __init__(self, session: Session, namespace: Any, layout: Layout, *,
                 block_tokens: int, rank: int, ranks: int,
                 load_deadline: float, save_deadline: float):
        self._session = session
        self._namespace = namespace
        self._layout = layout
        self._shape = {"block_tokens": block_tokens, "shard_index": rank,
                       "shard_count": ranks}
        self._load_deadline = load_deadline
        self._save_deadline = save_deadline
        self._chains: dict[str, Chain] = {}
        # Calls in flight of each request.
        self._loading: collections.Counter[str] = collections.Counter()
        self._saving: collections.Counter[str] = collections.Counter()
        self._received: set[str] = set()
        self._missing: set[int] = set()
        # Ended; told once nothing of theirs is in flight.
        self._ended: set[str] = set()

    def begin(self, plan: Plan) -> None:
        """What the step's plan says of requests."""
        for rid, (first, hashes) in plan.chains.items():
            chain = self._chains.get(rid)
            if chain is None:
                chain = self._chains[rid] = Chain(**self._shape)
            chain.extend(hashes[len(chain) - first:])
        self._ended.update(plan.ended)

    def preempted(self, rids: Iterable[str]) -> None:
        """Returns when no save uses their blocks, which others are about to
        write."""
        rids = [rid for rid in rids if self._saving[rid]]
        if rids:
            self._session.wait(
                lambda: not any(self._saving[rid] for rid in rids))

    def load(self, plan: Plan) -> None:
        for rid, start, ids in plan.loads:
            if not ids:
                self._received.add(rid)
            for at in range(0, len(ids), BATCH):
                some = ids[at:at + BATCH]
                self._loading[rid] += 1
                self._session.submit(
                    functools.partial(self._loaded, rid, some),
                    self._namespace.submit_read,
                    self._chains[rid][start + at:start + at + len(some)],
                    [self._layout.memory(block) for block in some],
                    deadline=self._load_deadline)

    def _loaded(self, rid: str, ids: list[int], result: Any) -> None:
        self._missing.update(
            block for block, ok in zip(ids, good_of(result, len(ids)))
            if not ok)
        self._loading[rid] -= 1
        if not self._loading[rid]:
            del self._loading[rid]
            self._received.add(rid)

    def save(self, plan: Plan) -> None:
        """The step has written these blocks."""
        for rid, start, ids in plan.saves:
            for at in range(0, len(ids), BATCH):
                some = ids[at:at + BATCH]
                self._saving[rid] += 1
                self._session.submit(
                    functools.partial(self._saved, rid),
                    self._namespace.submit_write,
                    self._chains[rid][start + at:start + at + len(some)],
                    [self._layout.memory(block) for block in some],
                    deadline=self._save_deadline)

    def _saved(self, rid: str, result: Any) -> None:
        if result is not None and not all(result.good):
            _log.debug("firnkv: request %s: not all saved: %s %s", rid,
                       result.why, set(result.outcomes))
        self._saving[rid] -= 1
        if not self._saving[rid]:
            del self._saving[rid]

    def finished(self, rids: Iterable[str]) -> tuple[set[str], set[str]]:
        """(saved, loaded): each request once, when nothing of it moves. `rids`
        have ended since."""
        self._session.poll()
        for rid in rids:
            self._chains.pop(rid, None)
        saved = {rid for rid in self._ended if not self._saving[rid]}
        self._ended -= saved
        received, self._received = self._received, set()
        return saved, received

    def missing(self) -> set[int]:
        """The engine's blocks that were to be loaded and were not: in the step
        in which finished() says their request, or before."""
        missing, self._missing = self._missing, set()
        return missing
