"""Tensors over bytes, and the tensors a program starts from. Knows no addresses: callers bring buffers and plans."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from gpu_agent.workload.executor import DTYPES
from shared.canonical import sha256
from shared.claims.layout import RegionPlan
from shared.claims.program import ProgramManifest, SeedInit, TensorSpec
from shared.errors import InvalidProgram


def tensors_over(buffer: Any, plan: RegionPlan) -> dict[str, Tensor]:
    """Each tensor of a region as its own `frombuffer` at its offset: compute sees the very bytes that are measured.

    Slices of one tensor would share a version counter and break backward (design 5).

    Args:
        buffer: a writable object with the buffer protocol (mmap, bytearray, memoryview), at least `plan.length` bytes.
    """
    result = {}
    for placed in plan.tensors:
        dtype = DTYPES[placed.spec.dtype]
        count = math.prod(placed.spec.shape)
        flat = torch.empty(0, dtype=dtype)
        if count:  # frombuffer refuses empty tensors
            flat = torch.frombuffer(buffer, dtype=dtype, count=count, offset=placed.offset)
        result[placed.spec.name] = flat.view(placed.spec.shape)
    return result


def initial_tensors(manifest: ProgramManifest, weights: bytes | None) -> dict[str, Tensor]:
    """Parameters and declared state as the program states them, on the CPU, in the manifest's order.

    Args:
        weights: the safetensors bytes named by the manifest; None if the manifest starts from a seed.
    Raises:
        InvalidProgram: weights missing, of another digest, or not exactly the declared tensors.
    """
    init = manifest.initial_weights
    specs = [*manifest.parameters, *manifest.state]
    if isinstance(init, SeedInit):
        return _from_seed(init, specs)
    if weights is None:
        raise InvalidProgram(f"Program {manifest.name!r} needs its initial weights (sha256 {init.sha256})")
    if sha256(weights).hex() != init.sha256 or len(weights) != init.size_bytes:
        raise InvalidProgram(
            f"The initial weights are not those of program {manifest.name!r}",
            code="weights-digest-mismatch",
            expected=init.sha256,
            got=sha256(weights).hex(),
        )
    return read_weights(weights, specs)


def read_weights(data: bytes, specs: list[TensorSpec]) -> dict[str, Tensor]:
    """Safetensors bytes that hold exactly `specs`.

    Raises:
        InvalidProgram: not safetensors, or a tensor is missing, unknown, or of another shape or dtype.
    """
    try:
        found = safetensors.torch.load(data)
    except Exception as error:  # the library raises its own, ValueError and KeyError on hostile bytes
        raise InvalidProgram(f"The weights are not a safetensors file: {type(error).__name__}") from error
    wanted = {spec.name for spec in specs}
    if set(found) != wanted:
        odd = sorted(set(found) ^ wanted)[0]
        raise InvalidProgram(f"The weights do not match the program: tensor {odd!r} is missing or unknown")
    for spec in specs:
        tensor = found[spec.name]
        if tuple(tensor.shape) != spec.shape or tensor.dtype != DTYPES[spec.dtype]:
            raise InvalidProgram(
                f"Weight {spec.name!r} has another shape or dtype than the program declares",
                expected=f"{spec.dtype} {list(spec.shape)}",
                got=f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}",
            )
    return {spec.name: found[spec.name] for spec in specs}


def _from_seed(init: SeedInit, specs: list[TensorSpec]) -> dict[str, Tensor]:
    # One generator, always on the CPU, rules in order: the same seed gives the same bytes on every device.
    generator = torch.Generator().manual_seed(init.seed)
    result = {}
    for spec, rule in zip(specs, init.rules, strict=True):
        dtype = DTYPES[spec.dtype]
        if rule.kind == "normal":
            tensor = torch.empty(spec.shape, dtype=dtype).normal_(0.0, rule.std, generator=generator)
        else:
            tensor = torch.full(spec.shape, rule.value, dtype=torch.float64).to(dtype)
        result[spec.name] = tensor
    return result


def fill(target: Mapping[str, Tensor], source: Mapping[str, Tensor]) -> None:
    """Copy values in place, by name; both must name the same tensors.

    Raises:
        InvalidProgram: names or shapes differ.
    """
    if set(target) != set(source):
        raise InvalidProgram("The tensors to copy are not those that the program declares")
    with torch.no_grad():
        for name, tensor in target.items():
            if tensor.shape != source[name].shape:
                raise InvalidProgram(f"Tensor {name!r} has another shape than the program declares")
            tensor.copy_(source[name])


def update_norm(current: Mapping[str, Tensor], committed: Mapping[str, Tensor]) -> float:
    """Euclidean norm of all parameter changes since the committed model."""
    with torch.no_grad():
        squares = [torch.sum((current[n].double() - committed[n].double()) ** 2) for n in sorted(current)]
    return math.sqrt(float(sum(squares)))
