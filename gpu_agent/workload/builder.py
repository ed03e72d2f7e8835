"""Builds a program archive from the user's PyTorch code. Runs on the user's machine, never in the GPU's compute process."""

from __future__ import annotations

from typing import Any, Final, get_args

import safetensors.torch
import torch
from pydantic import ValidationError
from torch import Tensor

from gpu_agent.workload.executor import DTYPES
from gpu_agent.workload.exporter import Exported, export_graph
from gpu_agent.workload.loader import load_program
from gpu_agent.workload.records import least_records
from gpu_agent.workload.source import ProgramSource
from gpu_agent.workload.tensors import initial_tensors
from gpu_agent.workload.user_code import source_of, told
from shared.canonical import sha256, sha384
from shared.claims.graph import GraphKind, InputKind, encode_graph
from shared.claims.new_programs import pack
from shared.claims.program import InitRule, ProgramManifest, SeedInit, TensorSpec, WeightsFile
from shared.claims.records import DType
from shared.claims.shape import words_of
from shared.errors import InvalidProgram

_SAMPLES: Final = 3  # not 0 or 1, which torch.export treats as special sizes
# What is stored; a graph may compute in others besides.
_DTYPE_NAMES: Final = {DTYPES[name]: name for name in get_args(DType)}


def build(target: str | ProgramSource, **options: Any) -> tuple[bytes, bytes | None]:
    """Build a program: (archive bytes, initial weights as safetensors bytes, or None if they come from a seed).

    Args:
        target: `module:function` returning a `ProgramSource`, the name of a built-in program, or a `ProgramSource`.
        options: keyword arguments of that function.
    Raises:
        InvalidProgram: the code raised something, or cannot become a program; the sentence names the first reason.
        BadRequest: the target or an option does not exist.
    """
    source = target if isinstance(target, ProgramSource) else source_of(target, options)
    sample = sample_batch(source)
    canonical, tensors = _tensors(source)
    exports: dict[GraphKind, Exported] = {
        "train": export_graph(source, sample, "train", canonical),
        "eval": export_graph(source, sample, "eval", canonical),
    }
    for exported in exports.values():
        tensors["state"] |= exported.constants
    _check_all_used(exports, tensors)
    graphs = {kind: encode_graph(exported.graph) for kind, exported in exports.items()}
    everything = tensors["parameter"] | tensors["state"]
    weights = None if isinstance(source.init, SeedInit) else _safetensors(everything)
    try:
        manifest = _manifest(source, exports, graphs, tensors, weights)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise InvalidProgram(f"The program's {where or 'declaration'} is wrong: {words_of(first)}") from None
    archive = pack(manifest, graphs)
    _tried_out(archive, weights, sample)
    return archive, weights


def sample_batch(source: ProgramSource) -> dict[str, Tensor]:
    """The batch that the export runs on: the source's own, or the least valid values of the record schema.

    Raises:
        InvalidProgram: the source's own sample does not fit its record schema.
    """
    if source.sample is None:
        return least_records(source.records, _SAMPLES)
    for field in source.records.fields:
        tensor = source.sample.get(field.name)
        if tensor is None or tensor.dtype != DTYPES[field.dtype] or tuple(tensor.shape[1:]) != field.shape:
            raise InvalidProgram(f"The sample batch's field {field.name!r} does not fit the record schema")
        if tensor.shape[0] < _SAMPLES:
            raise InvalidProgram(f"The sample batch must hold at least {_SAMPLES} records")
    return dict(source.sample)


def _tensors(
    source: ProgramSource,
) -> tuple[dict[str, tuple[InputKind, str]], dict[InputKind, dict[str, Tensor]]]:
    """State-dict name -> (kind, canonical name), and the tensors by kind and canonical name; tied weights appear once."""
    first: dict[int, tuple[InputKind, str]] = {}
    canonical: dict[str, tuple[InputKind, str]] = {}
    tensors: dict[InputKind, dict[str, Tensor]] = {"parameter": {}, "state": {}}
    for name, parameter in source.model.named_parameters(remove_duplicate=False):
        kind: InputKind = "parameter" if parameter.requires_grad else "state"
        canonical[name] = first.setdefault(id(parameter), (kind, name))
        tensors[kind].setdefault(canonical[name][1], parameter.detach())
    for name, buffer in source.model.named_buffers(remove_duplicate=False):
        canonical[name] = first.setdefault(id(buffer), ("state", name))
        tensors["state"].setdefault(canonical[name][1], buffer.detach())
    for name, tensor in (tensors["parameter"] | tensors["state"]).items():
        if tensor.dtype not in _DTYPE_NAMES:
            raise InvalidProgram(f"Tensor {name!r} has dtype {tensor.dtype}, which a program cannot hold")
    if not tensors["parameter"]:
        raise InvalidProgram("The model has no trainable parameter", code="nothing-to-train")
    return canonical, tensors


def _check_all_used(exports: dict[GraphKind, Exported], tensors: dict[InputKind, dict[str, Tensor]]) -> None:
    """Refuse a parameter that the loss never reads: weight decay alone would change it, unlike in plain PyTorch."""
    used = {name for kind, name in exports["train"].graph.inputs if kind == "parameter"}
    if not used:
        raise InvalidProgram("The loss does not depend on any parameter", code="nothing-to-train")
    unused = [name for name in tensors["parameter"] if name not in used]
    if unused:
        raise InvalidProgram(
            f"The training loss does not use parameter {unused[0]!r}",
            code="unused-parameter",
            remedy="Remove it from the model, or set requires_grad to False so that it travels as declared state.",
        )


def _manifest(
    source: ProgramSource,
    exports: dict[GraphKind, Exported],
    graphs: dict[GraphKind, bytes],
    tensors: dict[InputKind, dict[str, Tensor]],
    weights: bytes | None,
) -> ProgramManifest:
    parameters = [_spec(name, tensor) for name, tensor in tensors["parameter"].items()]
    state = [_spec(name, tensor) for name, tensor in tensors["state"].items()]
    init = source.init
    initial = (
        _complete_rules(init, tensors)
        if isinstance(init, SeedInit)
        else WeightsFile(sha256=sha256(weights or b"").hex(), size_bytes=len(weights or b""))
    )
    return ProgramManifest(
        name=source.name,
        description=source.description,
        loss_unit=source.loss_unit,
        records=source.records,
        parameters=tuple(parameters),
        state=tuple(state),
        graphs={kind: sha384(data).hex() for kind, data in graphs.items()},
        operators=tuple(sorted(exports["train"].graph.operators | exports["eval"].graph.operators)),
        initial_weights=initial,
        defaults=source.defaults,
        tokenizer=source.tokenizer,
        metadata=dict(source.metadata),
    )


def _spec(name: str, tensor: Tensor) -> TensorSpec:
    return TensorSpec.model_validate({"name": name, "dtype": _DTYPE_NAMES[tensor.dtype], "shape": tuple(tensor.shape)})


def _complete_rules(init: SeedInit, tensors: dict[InputKind, dict[str, Tensor]]) -> SeedInit:
    """The source's rules in the manifest's order; uniform state without a rule gets its own value as a constant."""
    given = {rule.name: rule for rule in init.rules}
    rules = []
    for name, tensor in (tensors["parameter"] | tensors["state"]).items():
        rule = given.pop(name, None)
        if rule is None:
            uniform = name in tensors["state"] and tensor.numel() > 0 and bool((tensor == tensor.flatten()[0]).all())
            if not uniform:
                raise InvalidProgram(f"The seed rules say nothing about tensor {name!r}; use init='weights'")
            rule = InitRule(name=name, kind="constant", value=float(tensor.flatten()[0]))
        rules.append(rule)
    if given:
        raise InvalidProgram(f"The seed rules name {sorted(given)[0]!r}, which the model does not have")
    return SeedInit(seed=init.seed, rules=tuple(rules))


def _safetensors(tensors: dict[str, Tensor]) -> bytes:
    contiguous = {
        name: tensor.detach().clone(memory_format=torch.contiguous_format) for name, tensor in tensors.items()
    }
    return safetensors.torch.save(contiguous)


def _tried_out(archive: bytes, weights: bytes | None, sample: dict[str, Tensor]) -> None:
    """`_try_out`, whose failures are told whole: these records are the author's own."""
    try:
        _try_out(archive, weights, sample)
    except InvalidProgram as error:
        if error.__context__ is None:
            raise
        raise InvalidProgram(
            f"{error.detail}: {told(error.__context__)}", code=error.code,
            remedy="Change the model or the loss; or give the source a `sample` of records that it is written for.",
        ) from error  # fmt: skip


def _try_out(archive: bytes, weights: bytes | None, sample: dict[str, Tensor]) -> None:
    """Run what was built, at two batch sizes and backwards, so that a holder or the GPU is not the first to find out."""
    program = load_program(archive)
    tensors = initial_tensors(program.manifest, weights)
    params = {spec.name: tensors[spec.name].requires_grad_(True) for spec in program.manifest.parameters}
    for size in (_SAMPLES, 2):
        state = {spec.name: tensors[spec.name].clone() for spec in program.manifest.state}
        batch = {name: tensor[:size] for name, tensor in sample.items()}
        losses, _ = program.train(params, state, batch)
        if not losses.requires_grad:
            raise InvalidProgram("No gradient flows from the loss to any parameter", code="nothing-to-train")
        losses.mean().backward()  # type: ignore[no-untyped-call]  # PyTorch leaves it untyped
        with torch.no_grad():
            program.eval(params, state, batch)
    for name, parameter in params.items():
        if parameter.grad is None:
            raise InvalidProgram(f"No gradient flows from the loss to parameter {name!r}", code="unused-parameter")


__all__ = ["build", "sample_batch"]
