"""A program of which each kind of operator runs once, however often its graph has it. Knows no device and no training.

For a process that waits: on a card a kernel must be loaded before it runs first, and twelve layers of a model want the same kernels as one.
What such a step computes means nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any

import torch
from torch import Tensor

from gpu_agent.workload.loader import LoadedProgram


class Seen:
    """Operators by name and by what a kernel is chosen by: shapes, strides and dtypes of tensors, and all other arguments' values."""

    def __init__(self) -> None:
        self._made: dict[Hashable, Any] = {}
        self._read: set[int] = set()

    def once(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The operator, which gives what the first of its kind gave."""

        def call(*args: Any, **kwargs: Any) -> Any:
            kind = (name, _kind(args), _kind(sorted(kwargs.items())))
            if kind not in self._made:
                self._read.update(id(one) for one in _tensors([args, list(kwargs.values())]))
                self._made[kind] = function(*args, **kwargs)
            return self._made[kind]

        return call

    def ends(self) -> list[Tensor]:
        """What was made, can have gradients, and was read by nobody: gradients would not flow through it otherwise."""
        made = _tensors(list(self._made.values()))
        return [one for one in made if one.requires_grad and id(one) not in self._read]


class EachKindOnce(LoadedProgram):
    """A loaded program whose training steps are shortened so."""

    def __init__(self, program: LoadedProgram) -> None:
        vars(self).update(vars(program))  # not the base's own: there is nothing to load
        self._whole = self._train

    def train(
        self, params: Mapping[str, Tensor], state: Mapping[str, Tensor], batch: Mapping[str, Tensor]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """See `LoadedProgram.train`; gradients flow from these losses to all that was computed."""
        seen = Seen()
        self._train = self._whole.with_functions(seen.once)
        losses, new_state = super().train(params, state, batch)
        for end in seen.ends():
            losses = losses + end.sum().to(losses.dtype)
        return losses, new_state


def _tensors(values: Any) -> list[Tensor]:
    if isinstance(values, Tensor):
        return [values]
    return [one for value in values for one in _tensors(value)] if isinstance(values, list | tuple) else []


def _kind(value: Any) -> Hashable:
    if isinstance(value, Tensor):
        return tuple(value.shape), value.stride(), value.dtype, value.requires_grad
    if isinstance(value, list | tuple):
        return tuple(_kind(one) for one in value)
    return value if isinstance(value, torch.dtype | torch.device | torch.memory_format) else repr(value)
