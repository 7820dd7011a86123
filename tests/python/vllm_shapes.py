"""Modules of vLLM's shape, for tests of its contracts without it: what its base
classes and plain values are, and nothing that they do. Import it before
firnkv.vllm's modules.
"""

import abc
import dataclasses
import enum
import sys
import types


def module(name, **names):
    made = types.ModuleType(name)
    vars(made).update(names)
    sys.modules[name] = made
    parent, _, child = name.rpartition(".")
    if parent:
        if parent not in sys.modules:
            module(parent)
        setattr(sys.modules[parent], child, made)
    return made


class LookupResult(enum.Enum):
    MISS = 1
    HIT = 2
    HIT_PENDING = 3
    RETRY = 4


class Medium(enum.Enum):
    CPU = "CPU"
    STORAGE = "STORAGE"


class RequestOffloadingContext:
    pass


@dataclasses.dataclass
class TransferJob:
    job_id: int
    keys: list
    chunk_ids: list
    is_promotion: bool
    req_context: object = None


@dataclasses.dataclass
class JobResult:
    job_id: int
    success: bool
    successful_keys: list = None
    transfer_time: float = None
    transfer_bytes: int = None


class SecondaryTierManager(abc.ABC):
    def __init__(self, offloading_spec, primary_kv_view, tier_type,
                 backpressure_detector=None):
        self._offloading_spec = offloading_spec
        self._primary_kv_view = primary_kv_view
        self.tier_type = tier_type

    @abc.abstractmethod
    def lookup(self, key, req_context): ...

    @abc.abstractmethod
    def submit_store(self, job_metadata): ...

    @abc.abstractmethod
    def submit_load(self, job_metadata): ...

    @abc.abstractmethod
    def get_finished_jobs(self): ...

    @abc.abstractmethod
    def on_new_request(self, req_context): ...

    @abc.abstractmethod
    def drain_jobs(self): ...


class SecondaryTierFactory:
    registry = {}

    @classmethod
    def register_tier(cls, tier_type, module_path, class_name):
        if tier_type in cls.registry:
            raise ValueError(tier_type)
        cls.registry[tier_type] = (module_path, class_name)


class KVConnectorRole(enum.Enum):
    SCHEDULER = 0
    WORKER = 1


class KVConnectorMetadata:
    pass


class KVConnectorHandshakeMetadata:
    pass


class SupportsHMA(abc.ABC):
    @abc.abstractmethod
    def request_finished_all_groups(self, request, block_ids): ...


class KVConnectorBase_V1(abc.ABC):  # pylint: disable=invalid-name
    def __init__(self, vllm_config, role, kv_cache_config):
        self._vllm_config = vllm_config
        self._kv_transfer_config = vllm_config.kv_transfer_config
        self._kv_cache_config = kv_cache_config
        self._connector_metadata = None
        self._role = role

    @property
    def role(self):
        return self._role

    def bind_connector_metadata(self, connector_metadata):
        self._connector_metadata = connector_metadata

    def clear_connector_metadata(self):
        self._connector_metadata = None

    def _get_connector_metadata(self):
        assert self._connector_metadata is not None
        return self._connector_metadata

    @abc.abstractmethod
    def start_load_kv(self, forward_context, **kwargs): ...

    @abc.abstractmethod
    def wait_for_layer_load(self, layer_name): ...

    @abc.abstractmethod
    def save_kv_layer(self, layer_name, kv_layer, attn_metadata, **kwargs): ...

    @abc.abstractmethod
    def wait_for_save(self): ...

    @abc.abstractmethod
    def get_num_new_matched_tokens(self, request, num_computed_tokens): ...

    @abc.abstractmethod
    def update_state_after_alloc(self, request, blocks,
                                 num_external_tokens): ...

    @abc.abstractmethod
    def build_connector_meta(self, scheduler_output): ...


module("vllm.v1.kv_offload.base", LookupResult=LookupResult, Medium=Medium,
       RequestOffloadingContext=RequestOffloadingContext)
module("vllm.v1.kv_offload.tiering.base", JobResult=JobResult,
       SecondaryTierManager=SecondaryTierManager)
module("vllm.v1.kv_offload.tiering.factory",
       SecondaryTierFactory=SecondaryTierFactory)
module("vllm.v1.core.kv_cache_utils", NONE_HASH=b"n" * 32)
module("vllm.distributed.kv_transfer.kv_connector.v1.base",
       KVConnectorBase_V1=KVConnectorBase_V1,
       KVConnectorHandshakeMetadata=KVConnectorHandshakeMetadata,
       KVConnectorMetadata=KVConnectorMetadata,
       KVConnectorRole=KVConnectorRole, SupportsHMA=SupportsHMA)
