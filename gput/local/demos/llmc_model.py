"""Makes the llm.c demo's model file: a small byte-level GPT-2 of random values. Knows no training.

A process of its own, because it needs PyTorch. Usage: python -m gput.local.demos.llmc_model FILE LAYERS HEADS WIDTH CONTEXT SEED
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gpu_agent.workload.llmc import write_llmc_model
from gpu_agent.workload.programs.gpt2 import GPT2, GPT2Config, seed_init
from gput.local.demos.texts import VOCABULARY


def main(file: Path, layers: int, heads: int, width: int, context: int, seed: int) -> None:
    """Write `file` with GPT-2's usual initial values, drawn from `seed`."""
    config = GPT2Config(layers=layers, heads=heads, width=width, context=context, vocab=VOCABULARY)
    write_llmc_model(file, config, initial(config, seed))


def initial(config: GPT2Config, seed: int) -> dict[str, NDArray[np.float32]]:
    """Every parameter by its rule."""
    model, draws = GPT2(config), np.random.default_rng(seed)
    shapes = {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
    return {
        rule.name: (
            draws.normal(0.0, rule.std, shapes[rule.name])
            if rule.kind == "normal"
            else np.full(shapes[rule.name], rule.value)
        ).astype(np.float32)
        for rule in seed_init(model, seed).rules
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
