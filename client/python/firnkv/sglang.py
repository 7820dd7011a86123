"""SGLang's HiCache keeps its pages in FirnKV: a dynamic storage backend.

    --enable-hierarchical-cache --hicache-mem-layout page_first
    --hicache-storage-backend dynamic --hicache-storage-backend-extra-config
     '{"backend_name": "firnkv", "module_path": "firnkv.sglang",
       "class_name": "HiCache", "interface_v1": 1,
       "socket_path": "/run/firnkv/node.sock", "weights_revision": "c0ffee"}'

A page of a rank, its K and its V and all its layers, is one block, so that it
lives and dies as one. With interface_v1 pages move between the host pool and
the node without a copy of ours, whatever the pool's layout is.
"""

from __future__ import annotations

import logging
import types
from typing import Any

from . import contracts
from ._client import Client, StateContract
from ._opening import open_soon

try:
    from sglang.srt.mem_cache.hicache_storage import HiCacheStorage as _Base
except ImportError:  # Without SGLang: for tests of the contract alone.
    _Base = object

try:
    from sglang.srt.mem_cache.hicache_storage import PoolTransferResult
except ImportError:  # Releases without models of several pools.
    PoolTransferResult = types.SimpleNamespace

_log = logging.getLogger(__name__)

#: Of the extra configuration: what SGLang's loader reads itself.
_LOADERS = {"backend_name", "module_path", "class_name", "interface_v1",
            "prefetch_threshold", "prefetch_timeout_base",
            "prefetch_timeout_per_ki_token", "hicache_storage_pass_prefix_keys"}
#: Blocks of one call of the SDK, which takes up to 4,096.
_BATCH = 1024


class HiCache(_Base):
    """One for each scheduler process, so for each rank. Thread-safe. No batch
    call ever raises: an exception would end a thread of SGLang's for good.
    Without a node everything is a miss.
    """

    def __init__(self, storage_config: Any = None, kwargs: Any = None):
        del kwargs
        extra = dict(getattr(storage_config, "extra_config", None) or {})
        self._config = storage_config
        self._name = extra.pop("namespace", "sglang")
        self._get_deadline = float(extra.pop("get_deadline", 2.0))
        self._set_deadline = float(extra.pop("set_deadline", 10.0))
        self._exists_deadline = float(extra.pop("exists_deadline", 1.0))
        # SGLang attaches before it serves, so a node that is there is waited
        # for, and one that is not costs its start this much.
        self._open_wait = float(extra.pop("open_wait", 2.0))
        self._closed = False
        self._fields = dict(extra.pop("contract", None) or {})
        if "weights_revision" in extra:
            self._fields["weights_revision"] = extra.pop("weights_revision")
        for name in _LOADERS:
            extra.pop(name, None)
        self._suffix = _rank_of(storage_config)
        self._pool: Any = None
        self._namespace: Any = None
        self._client = Client(**{"client_name": "sglang hicache",
                                 "wait_for_node": False, **extra})

    # --- What SGLang says once.

    def register_mem_pool_host(self, mem_pool_host: Any) -> None:
        """The pool says what the pages are: their namespace is opened here."""
        self._pool = self.mem_pool_host = mem_pool_host
        self._namespace = open_soon(
            self._client, self._name,
            contract_of(self._config, mem_pool_host, **self._fields),
            lambda: self._closed, wait=self._open_wait, chained=False)

    def close(self) -> None:
        """Idempotent."""
        self._closed = True
        self._client.close()

    def clear(self) -> bool:
        """Not offered: other engines use the blocks. `firnkv namespace clear`
        does it."""
        return False

    def get_stats(self) -> None:
        """SGLang's own shape of statistics is not filled; `firnkv` has them."""
        return None

    # --- Pages of the host pool, without a copy.

    def batch_exists(self, keys: list[str], extra_info: Any = None) -> int:
        """How many pages at the front are there."""
        def ask(some, _):
            return self._namespace.exists(
                some, deadline=self._exists_deadline).good
        good = self._guarded("exists", ask, keys, [None] * len(keys))
        return good.index(False) if False in good else len(good)

    def batch_get_v1(self, keys: list[str], host_indices: Any,
                     extra_info: Any = None) -> list[bool]:
        """Reads pages into the host pool; of each whether it is there."""
        return self._guarded("get", self._read, keys,
                             lambda: self._pages(keys, host_indices))

    def batch_set_v1(self, keys: list[str], host_indices: Any,
                     extra_info: Any = None) -> list[bool]:
        """Writes pages out of the host pool; a page that is there is left as it
        is."""
        return self._guarded("set", self._write, keys,
                             lambda: self._pages(keys, host_indices))

    # --- Models of several pools (hybrid attention, drafts): nothing is kept.

    def batch_exists_v2(self, keys: list[str], pool_transfers: Any = None,
                        extra_info: Any = None) -> Any:
        """No page has all its pools; one that has no other pool is looked for.
        """
        hits = 0 if pool_transfers else self.batch_exists(keys)
        return PoolTransferResult(kv_hit_pages=hits, extra_pool_hit_pages={})

    def batch_get_v2(self, transfers: list[Any],
                     extra_info: Any = None) -> dict[str, list[bool]]:
        return _nothing_of(transfers)

    def batch_set_v2(self, transfers: list[Any],
                     extra_info: Any = None) -> dict[str, list[bool]]:
        return _nothing_of(transfers)

    # --- The same for memory that the caller has: one tensor a page.

    def exists(self, key: str) -> bool:
        return self.batch_exists([key]) == 1

    def get(self, key: str, target_location: Any = None,
            target_sizes: Any = None) -> Any:
        return self.batch_get([key], [target_location])[0]

    def batch_get(self, keys: list[str], target_locations: Any = None,
                  target_sizes: Any = None) -> list:
        """The tensors that were filled; None for a page that is not there."""
        locations = list(target_locations or [])
        good = self._guarded("get", self._read, keys, lambda: locations)
        return [location if ok else None
                for location, ok in zip(locations, good)] or [None] * len(keys)

    def set(self, key: str, value: Any = None, target_location: Any = None,
            target_sizes: Any = None) -> bool:
        return self.batch_set([key], [value])

    def batch_set(self, keys: list[str], values: Any = None,
                  target_locations: Any = None,
                  target_sizes: Any = None) -> bool:
        """Whether all are stored."""
        return all(self._guarded("set", self._write, keys,
                                 lambda: list(values or [])))

    # --- How.

    def _read(self, names, memory):
        return self._namespace.read(names, memory, want="every",
                                    deadline=self._get_deadline).good

    def _write(self, names, memory):
        return self._namespace.write(names, memory,
                                     deadline=self._set_deadline).good

    def _pages(self, keys, host_indices) -> list[list[tuple[int, int]]]:
        """The pieces of each page, whose number depends on the layout."""
        ptrs, sizes = self._pool.get_page_buffer_meta(host_indices)
        pieces = [(int(ptr), int(size)) for ptr, size in zip(ptrs, sizes)]
        each = len(pieces) // len(keys) if keys else 0
        if each * len(keys) != len(pieces):
            raise ValueError(f"{len(pieces)} pieces for {len(keys)} pages")
        return [pieces[i * each:(i + 1) * each] for i in range(len(keys))]

    def _guarded(self, what, call, keys, memory) -> list[bool]:
        """False for every page where something does not go, with a line in the
        log."""
        keys = list(keys)
        good: list[bool] = []
        try:
            if self._namespace is None:
                raise ValueError("register_mem_pool_host has not been called")
            pages = memory() if callable(memory) else memory
            if len(pages) != len(keys):
                raise ValueError(f"memory of {len(pages)} pages for "
                                 f"{len(keys)}")
            names = [f"{key}{self._suffix}" for key in keys]
            for at in range(0, len(keys), _BATCH):
                good += call(names[at:at + _BATCH], pages[at:at + _BATCH])
        except Exception as error:  # pylint: disable=broad-except
            _log.warning("firnkv: %s of %d pages: %s", what, len(keys), error)
        return good + [False] * (len(keys) - len(good))


def _nothing_of(transfers: Any) -> dict[str, list[bool]]:
    return {getattr(each, "name", None): [False] * len(
        getattr(each, "keys", None) or ()) for each in transfers or ()}


def _rank_of(config: Any) -> str:
    """Which part of a page this process has; nothing where all ranks have the
    same (multi-head latent attention)."""
    ranks = [(getattr(config, "pp_rank", 0) or 0,
              getattr(config, "pp_size", 1) or 1),
             (getattr(config, "attn_cp_rank", 0) or 0,
              getattr(config, "attn_cp_size", 1) or 1)]
    if not getattr(config, "is_mla_model", False):
        ranks.append((getattr(config, "tp_rank", 0) or 0,
                      getattr(config, "tp_size", 1) or 1))
    index, count = contracts.rank_shard(ranks)
    return f"@{index:x}/{count:x}"


def contract_of(config: Any, pool: Any, **fields: Any) -> StateContract:
    """What SGLang's page hashes do not say: they are of tokens alone. Raises
    ValueError for a model whose revision nobody says."""
    model = getattr(config, "model_name", None)

    def of_pool(*names: str, otherwise: Any = None) -> Any:
        return next((getattr(pool, name) for name in names
                     if getattr(pool, name, None) is not None), otherwise)

    layout = str(of_pool("layout", otherwise="unknown"))
    heads = (f"mla {of_pool('kv_lora_rank')}+{of_pool('qk_rope_head_dim')}"
             if getattr(config, "is_mla_model", False)
             else f"{of_pool('head_num')} kv heads of {of_pool('head_dim')}, "
                  f"a rank's")
    found = {
        "model": model,
        "weights_revision": contracts.weights_revision(str(model)),
        "tokenizer": "token ids",
        "preprocessing": "token ids of SGLang's page hash",
        "positional": "as in the weights' revision",
        "kv_dtype": contracts.name_of_type(of_pool("dtype", otherwise="")),
        "layer_order": f"{of_pool('layer_num')} layers a rank, {layout}",
        "kv_order": layout,
        "head_grouping": heads,
        "page_order": layout,
        "block_tokens": of_pool("page_size"),
        "tensor_parallel": getattr(config, "tp_size", 1) or 1,
        "pipeline_parallel": getattr(config, "pp_size", 1) or 1,
        "context_parallel": getattr(config, "attn_cp_size", 1) or 1,
        # Of what _pages writes: raise it where that changes.
        "layout_version": 1,
        "cache_salt": "hash sha256 of tokens",
    }
    return contracts.make(found, fields)
