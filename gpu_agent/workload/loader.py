"""Loads a measured program: strict validation, then two callables. Knows no file, no training option, no holder.

Never `torch.export.load`, never pickle, never text that becomes code (design 5).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import torch
from torch import Tensor

from gpu_agent.workload.executor import Executor
from shared.claims.archive import open_archive
from shared.errors import InvalidProgram

FLOATS: Final = (torch.float32, torch.float64)


class LoadedProgram:
    """A program that can run. Holds no data and no weights, so it may be cached by the digest of the archive's bytes.

    Attributes:
        manifest: the program manifest.
        digest: the program digest, 48 bytes (SHA-384 of the canonical manifest).
        draws: whether the train graph draws random numbers (dropout).
    """

    def __init__(self, archive: bytes, device: str = "cpu") -> None:
        opened = open_archive(archive)
        self.manifest = opened.manifest
        self.digest = opened.digest
        self.draws = opened.graphs["train"].draws
        self._train = Executor(opened.graphs["train"], device)
        self._eval = Executor(opened.graphs["eval"], device)
        self._new_state = [name for name, _ in opened.graphs["train"].state_outputs]

    def train(
        self, params: Mapping[str, Tensor], state: Mapping[str, Tensor], batch: Mapping[str, Tensor]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Per-sample losses (B,) that gradients flow through, and values to copy into `state`.

        BatchNorm's running statistics are updated in `state` by the operator itself, as in plain PyTorch.

        Raises:
            InvalidProgram: an operator failed, or an output has the wrong shape or dtype.
        """
        losses, *values = self._train({"parameter": params, "state": state, "record": batch})
        new_state = dict(zip(self._new_state, values, strict=True))
        for name, value in new_state.items():
            if value.shape != state[name].shape or value.dtype != state[name].dtype:
                raise InvalidProgram(f"The train graph's new value of state {name!r} has another shape or dtype")
        return _checked(losses, batch), new_state

    def eval(self, params: Mapping[str, Tensor], state: Mapping[str, Tensor], batch: Mapping[str, Tensor]) -> Tensor:
        """Per-sample losses (B,); changes nothing.

        Raises:
            InvalidProgram: an operator failed, or the losses have the wrong shape or dtype.
        """
        (losses,) = self._eval({"parameter": params, "state": state, "record": batch})
        return _checked(losses, batch)


def _checked(losses: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
    size = next(iter(batch.values())).shape[0]
    if losses.shape != (size,) or losses.dtype not in FLOATS:
        raise InvalidProgram(
            f"The program's losses have shape {tuple(losses.shape)} and dtype {losses.dtype}; "
            f"expected one float per sample, shape ({size},)",
            code="losses-not-per-sample",
            remedy="Return one loss per sample, e.g. cross_entropy(..., reduction='none') averaged over positions only.",
        )
    return losses


def load_program(archive: bytes, device: str = "cpu") -> LoadedProgram:
    """Validate an archive strictly and build its train and eval callables for `device`.

    Raises:
        InvalidProgram: one sentence naming the fault.
    """
    return LoadedProgram(archive, device)
