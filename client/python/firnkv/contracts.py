"""State contracts out of an engine's resolved configuration, and the check that
processes agree on their block hashes. No engine is imported: fields are looked
for where its releases have had them.

    contract = firnkv.contracts.from_vllm(vllm_config)
    namespace = client.open_namespace("llama", contract, block_bytes=n)
    firnkv.contracts.check_hashes(client, "llama", contract, hash_of_probe)

What a contract says is what no block hash says: which model in which revision,
the element type, block size and layout of its KV, how it is split, and by which
algorithm and seed its hashes are made. A field that cannot be found is an error
that names it and the argument by which to give it.
"""

from __future__ import annotations

import enum
import hashlib
import json
import os
import socket
import time
from collections.abc import Iterable
from typing import Any

from ._client import Client, StateContract
from ._outcome import Outcome

#: Its first block is what processes compare their hashes by.
PROBE_TOKENS = tuple(range(3, 3 + 4096))


def _find(configuration: Any, *paths: str, otherwise: Any = None) -> Any:
    """The first of the dotted paths that leads to something; through mappings
    too."""
    for path in paths:
        value = configuration
        for name in path.split("."):
            if isinstance(value, dict):
                value = value.get(name)
            else:
                value = getattr(value, name, None)
            if value is None:
                break
        if value is not None:
            return value
    return otherwise


def _need(value: Any, field: str) -> Any:
    if value is None or value == "":
        raise ValueError(
            f"the engine's configuration does not say {field}; give it as "
            f"{field}=... (firnkv.StateContract says what it means)")
    return value


def name_of_type(dtype: Any) -> str:
    """torch.bfloat16 and "bfloat16" are one."""
    name = str(dtype).rsplit(".", 1)[-1]
    return {"bfloat16": "bf16", "float16": "fp16", "half": "fp16",
            "float32": "fp32", "float": "fp32", "fp8": "fp8_e4m3"}.get(
                name, name)


def weights_revision(model: str, commit: str | None = None) -> str | None:
    """What names the weights for good: the hub's commit; of a local folder a
    hash over its small files, and over size, begin and end of its weights. None
    where there is neither."""
    if commit:
        return str(commit)
    if not os.path.isdir(model):
        return None
    whole, edge = 1 << 20, 1 << 16
    digest = hashlib.sha256()
    for folder, folders, files in os.walk(model):
        folders.sort()
        for name in sorted(files):
            path = os.path.join(folder, name)
            size = os.path.getsize(path)
            digest.update(f"{os.path.relpath(path, model)} {size}\n".encode())
            with open(path, "rb") as file:
                if size <= whole:
                    digest.update(file.read())
                else:
                    digest.update(file.read(edge))
                    file.seek(-edge, os.SEEK_END)
                    digest.update(file.read(edge))
    return "files-" + digest.hexdigest()[:32]


def _positional(text_config: Any) -> str:
    """Of a model's configuration: everything that it says of positions."""
    said = {}
    for name in ("rope_theta", "rope_scaling", "rope_parameters",
                 "max_position_embeddings", "partial_rotary_factor",
                 "alibi", "position_embedding_type"):
        value = _find(text_config, name)
        if value is not None:
            said[name] = value
    return json.dumps(said, sort_keys=True, default=str) if said else ""


def _heads(text_config: Any) -> str:
    latent = _find(text_config, "kv_lora_rank")
    if latent:
        return f"mla {latent}+{_find(text_config, 'qk_rope_head_dim')}"
    heads = _find(text_config, "num_key_value_heads", "num_attention_heads",
                  "n_head")
    dim = _find(text_config, "head_dim")
    if dim is None:
        hidden = _find(text_config, "hidden_size", "n_embd")
        of = _find(text_config, "num_attention_heads", "n_head")
        dim = hidden // of if hidden and of else None
    return f"{heads} kv heads of {dim}" if heads and dim else ""


def _layers(text_config: Any) -> Any:
    return _find(text_config, "num_hidden_layers", "n_layer")


def seed_fingerprint(seed: str | None) -> str:
    """Of PYTHONHASHSEED, without telling it."""
    if seed is None or seed == "random":
        return "none"
    return hashlib.sha256(seed.encode()).hexdigest()[:16]


def from_vllm(vllm_config: Any, *, layout: str = "unknown",
              layout_version: int = 1, **fields: Any) -> StateContract:
    """Of vLLM's VllmConfig after it was resolved. `layout`: order of the axes
    in a block as the adapter writes it, e.g. "blocks,heads,tokens,kv";
    `fields`: of StateContract, in place of what is found here."""
    model = _find(vllm_config, "model_config.model")
    hf = _find(vllm_config, "model_config.hf_text_config",
               "model_config.hf_config")
    cache = _find(vllm_config, "cache_config")
    parallel = _find(vllm_config, "parallel_config")
    kv_dtype = _find(cache, "cache_dtype", otherwise="auto")
    if kv_dtype == "auto":
        kv_dtype = _find(vllm_config, "model_config.dtype")
    algorithm = _find(cache, "prefix_caching_hash_algo", otherwise="unknown")
    tokenizer = _find(vllm_config, "model_config.tokenizer", otherwise=model)
    found = {
        "model": model,
        "weights_revision": weights_revision(
            str(model), _find(vllm_config, "model_config.hf_config._commit_hash",
                              "model_config.revision")),
        "tokenizer": tokenizer and f"{tokenizer}@" + str(
            _find(vllm_config, "model_config.tokenizer_revision")
            or weights_revision(
                str(tokenizer), _find(vllm_config,
                                      "model_config.hf_config._commit_hash"))
            or "unknown"),
        "preprocessing": "token ids and extra keys of vLLM's block hash",
        "positional": _positional(hf),
        "kv_dtype": kv_dtype and name_of_type(kv_dtype),
        "layer_order": f"{_layers(hf)} layers, {layout}",
        "kv_order": layout,
        "head_grouping": _heads(hf),
        "page_order": layout,
        "block_tokens": _find(cache, "block_size"),
        "tensor_parallel": _find(parallel, "tensor_parallel_size",
                                 otherwise=1),
        "pipeline_parallel": _find(parallel, "pipeline_parallel_size",
                                   otherwise=1),
        "context_parallel": _find(parallel, "decode_context_parallel_size",
                                  "prefill_context_parallel_size",
                                  otherwise=1),
        "layout_version": layout_version,
        "cache_salt": f"hash {algorithm}, seed "
                      + seed_fingerprint(os.environ.get("PYTHONHASHSEED")),
    }
    return make(found, fields)


def from_sglang(server_args: Any, storage_config: Any = None, *,
                model_config: Any = None, layout_version: int = 1,
                **fields: Any) -> StateContract:
    """Of SGLang's ServerArgs and the HiCacheStorageConfig that a storage
    backend gets. SGLang's page hashes are of tokens alone."""
    model = _find(server_args, "model_path") or _find(storage_config,
                                                      "model_name")
    hf = _find(model_config, "hf_text_config", "hf_config",
               otherwise=model_config)
    kv_dtype = _find(server_args, "kv_cache_dtype", otherwise="auto")
    if kv_dtype == "auto":
        kv_dtype = _find(model_config, "dtype") or _find(hf, "torch_dtype",
                                                         "dtype")
    layout = _find(server_args, "hicache_mem_layout")
    if layout is None and storage_config is not None:
        page_first = _find(storage_config, "is_page_first_layout")
        layout = "page_first" if page_first else "layer_first"
    layout = layout or "unknown"
    tokenizer = _find(server_args, "tokenizer_path", otherwise=model)
    revision = _find(server_args, "revision") or _find(hf, "_commit_hash")
    found = {
        "model": model,
        "weights_revision": weights_revision(str(model), revision),
        "tokenizer": tokenizer and f"{tokenizer}@{revision or 'unknown'}",
        "preprocessing": "token ids of SGLang's page hash",
        "positional": _positional(hf),
        "kv_dtype": kv_dtype and name_of_type(kv_dtype),
        "layer_order": f"{_layers(hf)} layers, {layout}",
        "kv_order": layout,
        "head_grouping": _heads(hf),
        "page_order": layout,
        "block_tokens": _find(server_args, "page_size"),
        "tensor_parallel": _find(storage_config, "tp_size")
                           or _find(server_args, "tp_size", otherwise=1),
        "pipeline_parallel": _find(storage_config, "pp_size")
                             or _find(server_args, "pp_size", otherwise=1),
        "context_parallel": _find(storage_config, "attn_cp_size",
                                  otherwise=1),
        "layout_version": layout_version,
        "cache_salt": "hash sha256 of tokens",
    }
    return make(found, fields)


def from_lmcache(*, chunk_tokens: int = 256, **fields: Any) -> StateContract:
    """Of LMCache, whose keys name model and rank themselves and which tells its
    storage nothing else: `fields` are what its servers must agree on besides
    (kv_dtype, weights_revision)."""
    return StateContract.opaque("in the key", chunk_tokens, **fields)


def make(found: dict[str, Any], fields: dict[str, Any]) -> StateContract:
    """Of what was found and what was given instead; ValueError naming the first
    field that neither has."""
    merged = {**found, **fields}
    for field in StateContract.__dataclass_fields__:
        if field not in ("adapters", "cache_salt"):
            _need(merged.get(field), field)
    for name in ("model", "tokenizer", "weights_revision"):
        merged[name] = str(merged[name])
    return StateContract(**merged)


class HashAgreement(enum.Enum):
    """What check_hashes has found."""

    #: Nobody was there before: this process's hash is what others will compare.
    FIRST = "first"
    #: The same as another process's.
    AGREES = "agrees"
    #: Another one: neither will ever hit what the other wrote.
    DIFFERS = "differs"
    #: Nobody could be asked.
    UNKNOWN = "unknown"


class HashesDiffer(RuntimeError):
    """Processes make different hashes of one prompt."""


_PROBE_BYTES = 512


def check_hashes(client: Client, name: str, contract: StateContract,
                 first_hash: bytes | str, *, deadline: float = 5.0,
                 fail: bool = True) -> HashAgreement:
    """Compares this process's hash of the first block of PROBE_TOKENS with that
    of the process which asked first: under the same namespace and contract.

    `first_hash`: what the engine's own function says for that block. With
    `fail`, hashes that differ raise HashesDiffer, which names the other process
    and the likely cause; else the answer is DIFFERS.

    The probe is a block like others and may be evicted: the next to ask is then
    the first.
    """
    if isinstance(first_hash, str):
        first_hash = first_hash.encode()
    probes = client.open_namespace(name + ".probe", contract, chained=False,
                                   lazy=True)
    mine = {"hash": hashlib.sha256(first_hash).hexdigest(),
            "host": socket.gethostname()[:64], "pid": os.getpid(),
            "time": time.strftime("%Y-%m-%d %H:%M:%S")}
    until = time.monotonic() + deadline
    other = None
    while other is None:
        left = until - time.monotonic()
        if left <= 0:
            return HashAgreement.UNKNOWN
        other, first = _ask(probes, mine, left)
        if first:
            return HashAgreement.FIRST
        if other is None:
            # Not open yet, or nobody there: as often as a namespace is tried.
            time.sleep(min(0.1, left))
    if other.get("hash") == mine["hash"]:
        return HashAgreement.AGREES
    if not fail:
        return HashAgreement.DIFFERS
    raise HashesDiffer(
        f"this process and process {other.get('pid')} on {other.get('host')} "
        f"(started {other.get('time')}) make different hashes of the same "
        f"tokens, so that neither will ever find what the other has stored in "
        f"'{name}'. Give all processes the same PYTHONHASHSEED and the same "
        f"hash algorithm, and start them anew; the one that is wrong may be "
        f"the other one.")


def _ask(probes, mine: dict[str, Any],
         deadline: float) -> tuple[dict[str, Any] | None, bool]:
    """What the first to ask has left, and whether that is us."""
    text = json.dumps(mine).encode().ljust(_PROBE_BYTES)
    landing = bytearray(_PROBE_BYTES)
    for attempt in range(2):
        outcome = probes.read(["probe"], landing, deadline=deadline).outcomes[0]
        if outcome == Outcome.HIT:
            return json.loads(landing), False
        if outcome not in (Outcome.MISS, Outcome.EXPIRED) or attempt == 1:
            return None, False
        # The first commit wins; one that was beaten reads it.
        outcome = probes.write(["probe"], [text], deadline=deadline,
                               wait_for="published").outcomes[0]
        if outcome == Outcome.STORED:
            return mine, True
        if outcome != Outcome.ALREADY_THERE:
            return None, False
    return None, False


def rank_shard(ranks: Iterable[tuple[int, int]]) -> tuple[int, int]:
    """(index, count) of the shard of a process that is rank r of n in each of
    several splits, outermost first: tensor rank 1 of 4 in pipeline rank 0 of 2
    is 1 of 8."""
    index, count = 0, 1
    for rank, size in ranks:
        if not 0 <= rank < size:
            raise ValueError(f"rank {rank} of {size}")
        index, count = index * size + rank, count * size
    return index, count
