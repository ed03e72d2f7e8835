"""llm.c's GPT-2 as a training program and its weights, and an exported model back to llm.c. Knows no service and no memory layout."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import safetensors.numpy
import torch

from gpu_agent.workload.builder import build
from gpu_agent.workload.llmc import read_llmc_model, write_llmc_model
from gpu_agent.workload.programs import builtin
from gpu_agent.workload.programs.gpt2 import config_from_metadata
from shared.claims.program import ProgramManifest
from shared.errors import BadRequest, InvalidData


def import_llmc(model: Path) -> bytes:
    """An llm.c model file as safetensors under our names, for `initial_weights` of a session of a GPT-2 program of its sizes.

    Raises:
        InvalidData: not llm.c's fp32 model file.
    """
    return safetensors.numpy.save(read_llmc_model(model)[1])


def import_llmc_program(model: Path, sequence: int | None = None) -> tuple[bytes, bytes]:
    """(archive, safetensors) of a GPT-2 program of the file's sizes that starts from the file's weights.

    Args:
        sequence: T, tokens trained on per record; the file's maxT unless given.
    Raises:
        InvalidData: not llm.c's fp32 model file. BadRequest: T exceeds maxT.
    """
    config, tensors = read_llmc_model(model)
    source = builtin("gpt2", sequence=sequence, **asdict(config))
    source.model.load_state_dict({name: torch.from_numpy(value) for name, value in tensors.items()})
    archive, weights = build(replace(source, init="weights"))
    if weights is None:
        raise AssertionError("a program with init=weights has weights")
    return archive, weights


def export_llmc(weights: Path, program: ProgramManifest, target: Path) -> None:
    """Write a session's exported model as llm.c's model file; the sizes are the program's.

    Raises:
        BadRequest: the program is not the built-in GPT-2. InvalidData: the file is not a model of this program.
    """
    try:
        config = config_from_metadata(program.metadata)
    except ValueError as error:
        raise BadRequest(
            f"Program {program.name!r} has no form in llm.c: {error}", code="not-gpt2", remedy="Give a GPT-2 program."
        ) from error
    try:
        tensors = safetensors.numpy.load_file(weights)
    except Exception as error:  # the library raises its own error, ValueError and KeyError on hostile bytes
        raise InvalidData(f"{weights} is not a safetensors file", code="weights-malformed") from error
    write_llmc_model(target, config, tensors)
