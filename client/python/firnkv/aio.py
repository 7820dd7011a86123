"""The same calls for asyncio: each is awaited, none blocks the loop.

    async with firnkv.aio.AsyncClient(firnkv.Client(path)) as client:
        result = await client.read(llama, chain, into=tensor, deadline=0.05)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from ._core import Namespace
from ._client import Client
from ._errors import InvalidArgument


class AsyncClient:
    """Awaits the submitted calls of one Client, which must not be drained by
    anybody else. Belongs to the running loop it was made in; not thread-safe.
    A call that is cancelled runs to its end all the same, by its deadline: its
    memory is kept until then.
    """

    def __init__(self, client: Client):
        self._client = client
        self._loop = asyncio.get_running_loop()
        self._fd = client.completion_fd()
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._loop.add_reader(self._fd, self._drain)

    @property
    def client(self) -> Client:
        return self._client

    async def read(self, namespace: Namespace, blocks, into, **options):
        """As Namespace.read."""
        return await self._result(namespace.submit_read, blocks, into,
                                  **options)

    async def write(self, namespace: Namespace, blocks, source, **options):
        """As Namespace.write."""
        return await self._result(namespace.submit_write, blocks, source,
                                  **options)

    async def exists(self, namespace: Namespace, blocks, **options):
        """As Namespace.exists."""
        return await self._result(namespace.submit_exists, blocks, **options)

    async def remove(self, namespace: Namespace, blocks, **options):
        """As Namespace.remove."""
        return await self._result(namespace.submit_remove, blocks, **options)

    async def views(self, namespace: Namespace, blocks, **options):
        """As Namespace.views; the result is a (plain) context manager."""
        return await self._result(namespace.submit_views, blocks, **options)

    async def aclose(self) -> None:
        """Closes the Client: what is outstanding ends as CANCELLED."""
        if self._fd < 0:
            return
        await self._loop.run_in_executor(None, self._client.close)
        self._drain()
        self._loop.remove_reader(self._fd)
        self._fd = -1

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_exception) -> None:
        await self.aclose()

    async def _result(self, submit: Callable[..., int], *arguments, **options):
        future = self._loop.create_future()
        # Nothing drains between these two: that is done in this loop only.
        self._waiting[submit(*arguments, **options)] = future
        return await future

    def _drain(self) -> None:
        for number, result in self._client.drain():
            future = self._waiting.pop(number, None)
            if future is None or future.done():
                continue
            if result.invalid:
                future.set_exception(InvalidArgument(result.why))
            else:
                future.set_result(result)
