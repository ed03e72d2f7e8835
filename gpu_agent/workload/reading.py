"""A loss's value, fetched while a device goes on with what was asked of it after. Knows one number and no training."""

from __future__ import annotations

import torch
from torch import Tensor


class Reading:
    """One number of a CUDA device at a time, by a copy that the processor does not wait for until it wants to know.

    `Tensor.item` waits for all that the device was asked to do, which then stands idle until it is asked for more.
    """

    def __init__(self) -> None:
        self._host = torch.empty((), dtype=torch.float64, pin_memory=True)
        self._arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]  # PyTorch leaves it untyped

    def begin(self, value: Tensor) -> None:
        """Ask for a scalar's value as it is when the device comes to this."""
        self._host.copy_(value.detach(), non_blocking=True)
        self._arrived.record()

    def value(self) -> float:
        """What was asked for last, once it is there."""
        self._arrived.synchronize()
        return self._host.item()
