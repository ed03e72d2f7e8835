"""Operators whose PyTorch form would let a record's value decide about a size, or end the process: what stands for them. Knows no graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from torch import Tensor

_MASKS: Final = (torch.bool, torch.uint8)
_SIGNED: Final = (torch.int32, torch.int64)


def _index(tensor: Tensor, indices: Sequence[Tensor | None]) -> Tensor:
    """`aten.index.Tensor`, which PyTorch lets select by a mask as well: the result would be as large as values make it. The graph's check
    has refused it already (`shared.claims.data_shapes`); this one sees the dtypes."""
    if any(one is not None and one.dtype in _MASKS for one in indices):
        raise TypeError("an index is a mask")
    found: Tensor = torch.ops.aten.index.Tensor(tensor, indices)
    return found


def _divided(plain: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """`aten.div` with a rounding mode. The processor traps where the least integer is divided by -1 and the quotient cut off, which ends
    the process; here that comes to what negating it comes to."""

    def divide(left: Tensor, right: Tensor | complex, *, rounding_mode: str | None) -> Tensor:
        kind = torch.result_type(left, right)
        if rounding_mode != "trunc" or kind not in _SIGNED:
            return plain(left, right, rounding_mode=rounding_mode)
        # In the dtype that it is divided in: 2^32 - 1 is -1 in 32 bits.
        divisor = torch.as_tensor(right, device=None if isinstance(right, Tensor) else left.device).to(kind)
        minus = divisor == -1
        quotient: Tensor = torch.ops.aten.div.Tensor_mode(left, divisor.masked_fill(minus, 1), rounding_mode="trunc")
        return torch.where(minus, -quotient, quotient)

    return divide


GUARDED: Final[dict[str, Callable[..., Any]]] = {
    "aten.index.Tensor": _index,
    "aten.div.Tensor_mode": _divided(torch.ops.aten.div.Tensor_mode),
    "aten.div.Scalar_mode": _divided(torch.ops.aten.div.Scalar_mode),
}
"""In place of the operators of these names, always."""
