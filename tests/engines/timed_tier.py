"""The tier with a clock: where the time of a request goes. For tests."""

import time

import cpu_tiering
from firnkv.vllm.tier import RETRY, FirnKVTier

_seconds = {"lookup": 0.0, "read": 0.0, "copy": 0.0}
_bytes = {"copy": 0}


def taken():
    """Since the last time."""
    said = {**_seconds, "copied_bytes": _bytes["copy"]}
    for name in _seconds:
        _seconds[name] = 0.0
    for name in _bytes:
        _bytes[name] = 0
    return said


class TimedTier(FirnKVTier):
    """lookup: from the first question of a batch to its last answer; read: from
    the submission of a load until vLLM is told of its end."""

    _asked_at = None

    def lookup(self, key, req_context=None):
        said = super().lookup(key, req_context)
        if said is RETRY and self._asked_at is None:
            self._asked_at = time.monotonic()
        elif said is not RETRY and self._asked_at is not None:
            _seconds["lookup"] += time.monotonic() - self._asked_at
            self._asked_at = None
        return said

    def submit_load(self, job_metadata):
        self._loads = getattr(self, "_loads", {})
        self._loads[job_metadata.job_id] = time.monotonic()
        super().submit_load(job_metadata)

    def get_finished_jobs(self):
        finished = super().get_finished_jobs()
        for job in finished:
            began = getattr(self, "_loads", {}).pop(job.job_id, None)
            if began is not None:
                _seconds["read"] += time.monotonic() - began
        return finished


def _timed(copy):
    def copied(self, job_id, ids_from, ids_to, to_host):
        began = time.monotonic()
        done = copy(self, job_id, ids_from, ids_to, to_host)
        if not to_host:
            _seconds["copy"] += time.monotonic() - began
            _bytes["copy"] += self._ended[-1].transfer_size
        return done
    return copied


cpu_tiering.CopyingWorker._copy = _timed(cpu_tiering.CopyingWorker._copy)
