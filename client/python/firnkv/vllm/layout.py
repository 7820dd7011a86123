"""Where a block's bytes lie in an engine's KV tensors, derived from their
strides: no order of axes is assumed."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Mapping
from typing import Any

from .. import contracts

#: That the SDK takes for one block.
_MOST_PIECES = 1024


class Layout:
    """Of all layers of one rank. Its tensors must outlive its use."""

    def __init__(self, tensors: Mapping[str, Any], num_blocks: int):
        """`tensors`: by the layer's name, as vLLM registers them. ValueError for
        such as do not lie in host memory, or whose blocks have no pieces that
        are whole."""
        #: Of block 0: (address, bytes to the next block, bytes).
        self._pieces: list[tuple[int, int, int]] = []
        texts = []
        seen = set()
        for name, tensor in tensors.items():
            if not hasattr(tensor, "data_ptr"):
                raise ValueError(f"layer {name} has no tensor of its own")
            if tensor.device.type != "cpu":
                raise ValueError(f"layer {name} lies on a {tensor.device.type}")
            identity = (tensor.data_ptr(), tuple(tensor.shape))
            if identity in seen:
                continue  # Layers may share theirs.
            seen.add(identity)
            pieces, text = _pieces_of(name, tensor, num_blocks)
            self._pieces += pieces
            texts.append(text)
        if not self._pieces or len(self._pieces) > _MOST_PIECES:
            raise ValueError(f"a block of {len(self._pieces)} pieces; at most "
                             f"{_MOST_PIECES}")
        self.num_blocks = num_blocks
        self.block_bytes = sum(size for _, _, size in self._pieces)
        #: What a state contract says of it.
        self.text = (f"{len(texts)} x {texts[0]}" if len(set(texts)) == 1 else
                     f"{len(texts)} of " + hashlib.sha256(
                         "\n".join(texts).encode()).hexdigest()[:32])

    def memory(self, block: int) -> list[tuple[int, int]]:
        """The pieces (address, bytes) of the engine's block `block`."""
        if not 0 <= block < self.num_blocks:
            raise ValueError(f"block {block} of {self.num_blocks}")
        return [(address + block * step, size)
                for address, step, size in self._pieces]


def _pieces_of(name: str, tensor: Any,
               num_blocks: int) -> tuple[list[tuple[int, int, int]], str]:
    """Axes with larger strides than the block's make pieces; those with smaller
    ones must be dense."""
    shape, strides = tuple(tensor.shape), tuple(tensor.stride())
    if num_blocks not in shape:
        raise ValueError(f"layer {name}, of shape {shape}, has no axis of "
                         f"{num_blocks} blocks")
    axis = shape.index(num_blocks)
    outer = [i for i in range(len(shape))
             if i != axis and shape[i] > 1 and strides[i] > strides[axis]]
    inner = sorted((i for i in range(len(shape))
                    if i != axis and i not in outer and shape[i] > 1),
                   key=lambda i: strides[i])
    dense = 1
    for i in inner:
        if strides[i] != dense:
            raise ValueError(f"layer {name}, of shape {shape} and strides "
                             f"{strides}, has blocks that are not whole")
        dense *= shape[i]
    item = tensor.element_size()
    pieces = [(tensor.data_ptr() + item * sum(
        at * strides[i] for at, i in zip(place, outer)),
        item * strides[axis], item * dense)
        for place in itertools.product(*(range(shape[i]) for i in outer))]
    outer.sort(key=lambda i: -strides[i])
    order = [*(f"{i}:{shape[i]}" for i in outer), f"{axis}:blocks",
             *(f"{i}:{shape[i]}" for i in reversed(inner))]
    return pieces, (f"{contracts.name_of_type(tensor.dtype)} "
                    f"[{','.join(order)}]")
