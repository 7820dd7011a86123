"""What programs import of mooncake.store."""

from firnkv.mooncake import (BufferHandle, MooncakeDistributedStore,
                             MooncakeHostMemAllocator, ObjectDataType,
                             ReplicateConfig, SoftPinAction)

__all__ = ["BufferHandle", "MooncakeDistributedStore",
           "MooncakeHostMemAllocator", "ObjectDataType", "ReplicateConfig",
           "SoftPinAction"]
