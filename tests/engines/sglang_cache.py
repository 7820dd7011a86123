"""SGLang's own cache controller over CPU tensors: sglang_cache.py OUT JSON. One
process is one engine: it fills pages of its host pool and writes them to
storage, or asks the storage for a prefix, prefetches what is there, and compares
it byte by byte with what the filling process must have written.

JSON: a list of tasks {"layout", "zero_copy", "pages", "seed", "extra", "write"},
each with a host pool and a storage backend of its own. OUT: what became of them.
"""

import json
import sys
import threading
import time

import torch
from sglang.srt.managers.cache_controller import HiCacheController
from sglang.srt.mem_cache.allocator.paged import PagedTokenToKVPoolAllocator
from sglang.srt.mem_cache.memory_pool import MHATokenToKVPool
from sglang.srt.mem_cache.pool_host.base import host_memory_budget_scope
from sglang.srt.mem_cache.pool_host.mha import MHATokenToKVPoolHost
from sglang.srt.mem_cache.utils import get_storage_hash_str
from sglang.srt.runtime_context import get_parallel

PAGE = 16
TOKENS = 4096
LAYERS = 3
PATIENCE = 60.0


def controller(task):
    """SGLang's parts as its scheduler puts them together, with nothing on a
    device: KV pool and host pool are both memory of this process."""
    device = MHATokenToKVPool(
        size=TOKENS, page_size=PAGE, dtype=torch.bfloat16, head_num=2,
        head_dim=32, layer_num=LAYERS, device="cpu", enable_memory_saver=False)
    # SGLang leaves 10 GB of the machine to others, which it may not have.
    with host_memory_budget_scope(1 << 30):
        host = MHATokenToKVPoolHost(
            device.get_device_pool_infos()[0].buffer_info, 2.0, 0, PAGE,
            task["layout"], pin_memory=False, device_capacity_tokens=TOKENS,
            start_layer=0, end_layer=LAYERS)
    get_parallel().override_permanently(
        tp_rank=0, tp_size=1, pp_rank=0, pp_size=1, attn_dcp_size=1,
        attn_dcp_rank=0)
    made = HiCacheController(
        PagedTokenToKVPoolAllocator(TOKENS, PAGE, torch.bfloat16, "cpu", device,
                                    False),
        host, PAGE, None, threading.Event(), write_policy="write_through",
        io_backend="direct")
    made.attach_storage_backend(
        "dynamic", prefetch_threshold=PAGE, model_name="tiny/model",
        storage_backend_extra_config={
            "backend_name": "firnkv", "module_path": "firnkv.sglang",
            "class_name": "HiCache", "interface_v1": int(task["zero_copy"]),
            **task["extra"]})
    return made, host


def content(page, seed):
    """Of one page: what no other page or seed has, bit by bit."""
    generator = torch.Generator().manual_seed(seed * 100003 + page)
    return torch.randint(-32768, 32767, (2 * LAYERS * PAGE * 2 * 32,),
                         generator=generator, dtype=torch.int16)


def flat(host, index):
    return host.get_data_page(index, flat=True).view(torch.int16)


def write(made, host, task, tokens):
    """The pages of `tokens`, as a finished prefill leaves them on the host."""
    hashes = get_storage_hash_str(tokens, None, page_size=PAGE)
    indices = host.alloc(len(tokens))
    for page in range(task["pages"]):
        host.set_from_flat_data_page(
            indices[page * PAGE],
            content(page, task["seed"]).view(torch.bfloat16))
    began = time.monotonic()
    made.write_storage(indices, tokens, hashes)
    operation = made.ack_backup_queue.get(timeout=PATIENCE)
    return {"written_pages": operation.completed_tokens // PAGE,
            "seconds": time.monotonic() - began}


def fetch(made, host, task, tokens):
    """What SGLang's scheduler does for a request of these tokens: a hit query,
    room for the hits, and the transfer; then the pages that came."""
    began = time.monotonic()
    made.prefetch("request", tokens)
    operation = made.prefetch_hit_queue.get(timeout=PATIENCE)
    found = {"hit_pages": operation.storage_hit_count // PAGE,
             "query_seconds": time.monotonic() - began, "equal_pages": 0,
             "fetched_pages": 0}
    if not operation.storage_hit_count:
        return found
    operation.host_indices = host.alloc(operation.storage_hit_count)
    for index in range(0, operation.storage_hit_count, PAGE):
        # What was there before is neither page nor zeros.
        host.set_from_flat_data_page(
            operation.host_indices[index],
            torch.full((2 * LAYERS * PAGE * 2 * 32,), -1,
                       dtype=torch.int16).view(torch.bfloat16))
    made.prefetch_buffer.put(operation)
    while True:
        ack = made.ack_prefetch_queue.get(timeout=PATIENCE)
        if ack.completed_tokens is not None:
            found["fetched_pages"] = ack.completed_tokens // PAGE
        if ack.completed_req:
            break
    found["seconds"] = time.monotonic() - began
    found["equal_pages"] = sum(
        torch.equal(flat(host, operation.host_indices[page * PAGE]),
                    content(page, task["seed"]))
        for page in range(found["fetched_pages"]))
    return found


def perform(task):
    made, host = controller(task)
    tokens = [4 + (7 * i + task["seed"] * 1009) % 30000
              for i in range(task["pages"] * PAGE)]
    found = (write if task["write"] else fetch)(made, host, task, tokens)
    # An exception out of a batch call would have ended one.
    found["threads_alive"] = all(
        thread.is_alive() for thread in (
            made.prefetch_thread, made.prefetch_io_aux_thread,
            made.prefetch_sync_thread, made.backup_thread))
    made.detach_storage_backend()
    return found


def main(out, tasks):
    found = [perform(task) for task in json.loads(tasks)]
    with open(out, "w", encoding="utf-8") as file:
        json.dump(found, file)


if __name__ == "__main__":
    main(*sys.argv[1:])
