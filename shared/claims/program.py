"""The training program's manifest: what holders approve and the GPU measures. Knows no tensor library and no archive."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from shared.claims import Claim
from shared.claims.records import Dim, DType, RecordSchema, TensorName
from shared.claims.training import TrainingOptions

PROGRAM_FORMAT = "gput-program/1"
FLOATS = ("float32", "float64")
"""What a parameter may have as its dtype."""
HexSha384 = Annotated[str, Field(pattern=r"^[0-9a-f]{96}$")]
HexSha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class TensorSpec(Claim):
    """One parameter or declared state tensor, by its canonical name."""

    name: TensorName
    dtype: DType
    shape: tuple[Annotated[int, Field(ge=0, le=1 << 32)], ...] = Field(default=(), max_length=8)


class WeightsFile(Claim):
    """Initial weights that travel beside the archive as safetensors, named by their digest."""

    kind: Literal["safetensors"] = "safetensors"
    sha256: HexSha256
    size_bytes: int = Field(ge=1)


class InitRule(Claim):
    """How to make one tensor from a seed: `normal` draws N(0, std), `constant` fills with `value`."""

    name: TensorName
    kind: Literal["normal", "constant"]
    std: float = Field(default=0.0, ge=0)
    value: float = 0.0


class SeedInit(Claim):
    """Initial weights made inside the GPU from a seed, one rule per tensor, in the order of the tensors."""

    kind: Literal["seed"] = "seed"
    seed: int = Field(ge=0, lt=2**53)
    rules: tuple[InitRule, ...]


class ProgramManifest(Claim):
    """Canonical JSON of this is the program; its SHA-384 is the program digest (design 5).

    `parameters` are trained; `state` tensors (BatchNorm statistics) are declared and travel with the model. Both graphs take
    (parameters, state, batch of each record field) and return per-sample losses (B,); the train graph may also return new
    state. `operators` lists every ATen operator the graphs call, for the approver to read.
    """

    format: Literal["gput-program/1"] = "gput-program/1"
    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,63}$")]
    description: str = Field(default="", max_length=2000)
    loss_unit: str = Field(default="nats", max_length=40)
    records: RecordSchema
    parameters: tuple[TensorSpec, ...] = Field(min_length=1, max_length=100_000)
    state: tuple[TensorSpec, ...] = Field(default=(), max_length=100_000)
    graphs: dict[Literal["train", "eval"], HexSha384]
    operators: tuple[str, ...]
    initial_weights: Annotated[WeightsFile | SeedInit, Field(discriminator="kind")]
    defaults: TrainingOptions = TrainingOptions()
    tokenizer: Literal["none", "bytes", "external"] = "none"
    metadata: dict[str, str | int | float | bool] = Field(default_factory=dict, max_length=64)


__all__ = ["Dim", "HexSha256", "HexSha384", "InitRule", "ProgramManifest", "SeedInit", "TensorSpec", "WeightsFile"]
