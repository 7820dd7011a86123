"""Namespaces of engines, which start before their node and go on without it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from ._client import Client, StateContract
from ._core import Chain, Namespace


def open_soon(client: Client, name: str, contract: StateContract,
              closed: Callable[[], bool], *, wait: float = 0.0,
              **options: Any) -> Namespace:
    """A namespace that opens as soon as node and catalog are there. Calls would
    try it too, but an engine's first ones should find it open.

    closed: says True once nobody needs it any more.
    wait: seconds that this call waits for it, at most.
    """
    namespace = client.open_namespace(name, contract, lazy=True, **options)
    if namespace.chained:
        blocks: Any = Chain(block_tokens=contract.block_tokens)
        blocks.append(b"opening")
    else:
        blocks = ["opening"]

    def keep_trying() -> None:
        while not closed() and not namespace.opened:
            namespace.exists(blocks, deadline=1.0)
            time.sleep(0.1)

    thread = threading.Thread(target=keep_trying, name="firnkv-open",
                              daemon=True)
    thread.start()
    if wait > 0:
        thread.join(wait)
    return namespace
