"""What programs import of mooncake.store."""

from firnkv.mooncake import (BufferHandle, MooncakeDistributedStore,
                             ReplicateConfig)

__all__ = ["BufferHandle", "MooncakeDistributedStore", "ReplicateConfig"]
