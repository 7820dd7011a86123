"""LMCache's multiprocess server keeps its chunks in FirnKV: a client for its
`native_plugin` L2 adapter. Nothing of LMCache is imported.

    lmcache server ... --l2-adapter '{"type": "native_plugin",
        "module_path": "firnkv.lmcache", "class_name": "Client",
        "adapter_params": {"socket_path": "/run/firnkv/node.sock",
                           "kv_dtype": "bf16"}}'

LMCache's keys are opaque: they name blocks of a namespace that is not chained.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence

from ._client import Client as _Client
from ._errors import Exhausted
from ._opening import open_soon
from .contracts import from_lmcache


class Client:
    """What the adapter calls. Thread-safe. Each submit returns within
    microseconds and ends exactly once in drain_completions, by its deadline at
    the latest.

    It starts, and goes on, without a node: everything is a miss then.
    """

    def __init__(
            self,
            socket_path: str = "/run/firnkv/node.sock",
            namespace: str = "lmcache",
            *,
            get_deadline: float = 2.0,
            set_deadline: float = 10.0,
            exists_deadline: float = 1.0,
            delete_deadline: float = 5.0,
            kv_dtype: str = "in the key",
            weights_revision: str = "in the key",
            contract: dict | None = None,
            **client_options):
        """namespace: which of the tenant's it uses.
        *_deadline: seconds that such a batch may take; then its keys are
            misses, or were not stored.
        kv_dtype, weights_revision, contract: what LMCache's keys do not say
            and servers must agree on to share chunks (fields of
            StateContract). Its keys have the model's name, the rank and the
            tokens' hash; no element type, no revision, no layout.
        client_options: as firnkv.Client has them.
        """
        self._deadlines = {"get": get_deadline, "set": set_deadline,
                           "exists": exists_deadline,
                           "delete": delete_deadline}
        options = {"wait_for_node": False, "client_name": "lmcache",
                   **client_options}
        self._client = _Client(socket_path, **options)
        self._closed = False
        self._namespace = open_soon(
            self._client, namespace,
            from_lmcache(**{"kv_dtype": kv_dtype,
                            "weights_revision": weights_revision,
                            **(contract or {})}),
            lambda: self._closed, chained=False)
        self._lock = threading.Lock()
        # Of submits that were refused: they end with the next drain. No id of
        # the SDK's comes near.
        self._refused: list[tuple[int, bool, str, list[bool]]] = []
        self._refused_ids = itertools.count(1 << 62)

    def event_fd(self) -> int:
        """Readable while something can be drained."""
        return self._client.completion_fd()

    def submit_batch_get(self, keys: list[str],
                         memoryviews: list[memoryview]) -> int:
        """Reads whole blocks into the views, whose lengths need not be equal."""
        return self._submit(self._namespace.submit_read, keys, memoryviews,
                            deadline=self._deadlines["get"], want="every")

    def submit_batch_set(self, keys: list[str],
                         memoryviews: list[memoryview]) -> int:
        """Writes a block for each key; one that is there is left as it is."""
        return self._submit(self._namespace.submit_write, keys, memoryviews,
                            deadline=self._deadlines["set"])

    def submit_batch_exists(self, keys: list[str]) -> int:
        """Asks which keys are there, on this node or another."""
        return self._submit(self._namespace.submit_exists, keys,
                            deadline=self._deadlines["exists"], want="every")

    def submit_batch_delete(self, keys: list[str]) -> int:
        """Removes blocks; of each: whether it was there."""
        return self._submit(self._namespace.submit_remove, keys,
                            deadline=self._deadlines["delete"])

    def drain_completions(self) -> list[tuple[int, bool, str, list[bool]]]:
        """What has ended: (id, ok, error, of each key whether it is a hit, was
        stored, was there). `ok` of a set says that all keys are stored."""
        drained = [_completion(number, result)
                   for number, result in self._client.drain()]
        if self._refused:
            with self._lock:
                drained += self._refused
                self._refused = []
        return drained

    def close(self) -> None:
        """Ends what is outstanding. Idempotent."""
        self._closed = True
        self._client.close()

    def _submit(self, submit, keys: Sequence[str], *arguments,
                **options) -> int:
        try:
            return submit(keys, *arguments, **options)
        except Exhausted as refusal:
            # An exception would end a thread of LMCache's. Thousands are in
            # flight, so that a drain comes.
            with self._lock:
                number = next(self._refused_ids)
                self._refused.append(
                    (number, False, str(refusal), [False] * len(keys)))
            return number


def _completion(number, result):
    good = result.good
    if result.why:
        return number, False, result.why, good
    if hasattr(result, "stored") and not all(good):
        first = good.index(False)
        return (number, False, f"key {first} of {len(good)} was not stored: "
                f"{result.outcomes[first].name}", good)
    return number, True, "", good
