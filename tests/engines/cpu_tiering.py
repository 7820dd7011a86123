"""vLLM's tiering offload for engines on CPU, which its own worker does not do:
blocks are copied between the KV tensors and the primary tier at once. For tests.
"""

import torch
from vllm.v1.kv_offload.base import OffloadingWorker, TransferResult
from vllm.v1.kv_offload.cpu.shared_offload_region import SharedOffloadRegion
from vllm.v1.kv_offload.tiering.spec import TieringOffloadingSpec


class CopyingWorker(OffloadingWorker):
    def __init__(self, kv_caches, region):
        self._region = region
        self._ended = []
        self._pairs = []
        for each in kv_caches.tensors:
            page = each.page_size_bytes
            self._pairs.append((each.tensor.view(torch.int8).view(-1, page),
                                region.create_next_worker_view(page)))

    def _copy(self, job_id, ids_from, ids_to, to_host):
        source = torch.as_tensor([int(i) for i in ids_from])
        target = torch.as_tensor([int(i) for i in ids_to])
        moved = 0
        for device, host in self._pairs:
            if to_host:
                host[target] = device[source]
            else:
                device[target] = host[source]
            moved += len(source) * device.shape[1]
        self._ended.append(TransferResult(job_id, True, moved, 1e-6))
        return True

    def submit_store(self, job_id, src, dst):
        return self._copy(job_id, src.block_ids, dst.block_ids, True)

    def submit_load(self, job_id, src, dst):
        return self._copy(job_id, src.block_ids, dst.block_ids, False)

    def get_finished(self):
        ended, self._ended = self._ended, []
        return ended

    def wait(self, job_ids):
        pass

    def shutdown(self):
        self._region.cleanup()


class CpuTieringSpec(TieringOffloadingSpec):
    def get_worker(self, kv_caches):
        if not self._worker:
            region = SharedOffloadRegion(
                engine_id=self._engine_id, num_chunks=self.num_chunks,
                rank=self.config.parallel.rank,
                kv_bytes_per_chunk=self.kv_bytes_per_chunk,
                cpu_page_size=self.cpu_page_size_per_worker)
            self._worker = CopyingWorker(kv_caches, region)
        return self._worker
