"""What a user's function returns to become a training program. A declaration; builds and exports nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from torch import Tensor, nn

from shared.claims.program import SeedInit
from shared.claims.records import RecordSchema
from shared.claims.training import TrainingOptions

Loss = Callable[[nn.Module, dict[str, Tensor]], Tensor]


@dataclass(frozen=True)
class ProgramSource:
    """A PyTorch model with its loss, as `gput program build module:function` expects it.

    Attributes:
        name: short name of the program, `[a-z0-9-]`.
        model: parameters are trained; buffers and frozen parameters become declared state.
        loss: (model, batch of each record field by name, each (B, *shape)) -> per-sample losses (B,), floating point.
        records: the schema of one record; the builder makes its own sample batch from it unless `sample` is given.
        sample: a batch of at least three records by field name, for models that cannot take the schema's least values.
        init: `weights` stores the model's present values as safetensors; a `SeedInit` makes them inside the GPU.
        metadata: what users of the trained model need (e.g. GPT-2's sizes); travels in the program manifest.
    """

    name: str
    model: nn.Module
    loss: Loss
    records: RecordSchema
    sample: Mapping[str, Tensor] | None = None
    description: str = ""
    loss_unit: str = "nats"
    defaults: TrainingOptions = field(default_factory=TrainingOptions)
    init: Literal["weights"] | SeedInit = "weights"
    tokenizer: Literal["none", "bytes", "external"] = "none"
    metadata: Mapping[str, str | int | float | bool] = field(default_factory=dict)
