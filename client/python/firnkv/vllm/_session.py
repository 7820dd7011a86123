"""The Client of one engine process, polled by the thread that has the engine's
step: nothing here waits, and what was submitted ends in poll()."""

from __future__ import annotations

import dataclasses
import logging
import select
import threading
import time
from collections.abc import Callable
from typing import Any

from .. import contracts
from .._client import Client, StateContract
from .._core import Namespace
from .._errors import Error
from .._opening import open_soon

_log = logging.getLogger("firnkv.vllm")

#: Blocks of one call of the SDK, which takes up to 4,096.
BATCH = 1024


class Session:
    """Not thread-safe. It starts, and goes on, without a node: outcomes are
    misses then."""

    def __init__(self, socket_path: str, client_name: str,
                 options: dict[str, Any]):
        self.client = Client(socket_path, **{"client_name": client_name,
                                             "wait_for_node": False, **options})
        self._waiting: dict[int, Callable[[Any], None]] = {}
        self._refused: list[Callable[[Any], None]] = []
        self._closed = False

    def open(self, name: str, contract: StateContract,
             **options: Any) -> Namespace:
        """A namespace that opens as soon as it can."""
        return open_soon(self.client, name, contract, lambda: self._closed,
                         **options)

    def submit(self, ended: Callable[[Any], None], submit: Callable[..., int],
               *arguments: Any, **options: Any) -> None:
        """poll() calls `ended` exactly once: with the result, or with None where
        the call was refused. The call's memory is in use until then."""
        try:
            self._waiting[submit(*arguments, **options)] = ended
        except (Error, TypeError, ValueError, BufferError) as error:
            _log.warning("firnkv: a call was refused: %s", error)
            self._refused.append(ended)

    def poll(self) -> None:
        """Tells what has ended."""
        if self._refused:
            refused, self._refused = self._refused, []
            for ended in refused:
                ended(None)
        if self._waiting:
            for number, result in self.client.drain():
                self._waiting.pop(number)(result)

    def wait(self, done: Callable[[], bool]) -> None:
        """Polls until `done`, which comes to pass by the deadlines of what was
        submitted: each call ends by its own."""
        self.poll()
        fd = self.client.completion_fd()
        while not done() and (self._waiting or self._refused):
            select.select([fd], [], [], 0.1)
            self.poll()

    def close(self) -> None:
        """Ends what is outstanding, and tells it. Idempotent."""
        if self._closed:
            return
        self._closed = True
        self.client.close()
        end = time.monotonic() + 10.0
        self.poll()
        while self._waiting and time.monotonic() < end:
            time.sleep(0.001)
            self.poll()


def good_of(result: Any, count: int) -> list[bool]:
    """Of each block; all False for a call that was refused."""
    return [False] * count if result is None else result.good


class HashCheck:
    """Tells the log, once, whether this process's block hashes are those of the
    others: in a thread, since it asks the catalog."""

    def __init__(self, client: Client, name: str, contract: StateContract,
                 deadline: float = 30.0):
        # Without the seed: processes that differ in it are to be told so.
        probe = dataclasses.replace(contract, cache_salt="")
        self._arguments = (client, name, probe)
        self._deadline = deadline
        self._started = False

    def start(self, first_hash: Callable[[], bytes | None]) -> None:
        """`first_hash`: called once, when the engine has its hashes."""
        if self._started:
            return
        self._started = True
        try:
            value = first_hash()
        except Exception as error:  # pylint: disable=broad-except
            _log.warning("firnkv: block hashes were not compared: %s", error)
            return
        if value is not None:
            threading.Thread(target=self._ask, args=(bytes(value),),
                             name="firnkv-hashes", daemon=True).start()

    def _ask(self, value: bytes) -> None:
        try:
            found = contracts.check_hashes(*self._arguments, value,
                                           deadline=self._deadline)
            _log.info("firnkv: block hashes compared with other processes: %s",
                      found.value)
        except contracts.HashesDiffer as error:
            _log.error("firnkv: %s", error)
        except Exception as error:  # pylint: disable=broad-except
            _log.debug("firnkv: block hashes were not compared: %s", error)
