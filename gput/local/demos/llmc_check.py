"""Judges the llm.c demo: exports the model to llm.c's file, and holds a reader of its own against plain PyTorch; JSON on stdout.

A process of its own, because the launcher must not import PyTorch. Usage: python -m gput.local.demos.llmc_check FOLDER
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file

from gpu_agent.workload.llmc_program import export_llmc
from gpu_agent.workload.programs.gpt2 import GPT2, config_from_metadata
from gput.local import plain_check
from gput.local.demos.llmc import START, TRAINED, LlmC
from gput.local.demos.llmc_reader import Model, mean_loss
from shared.claims.archive import open_archive
from shared.errors import VerificationFailed

TOLERANCE = 1e-3
"""Of two logits: both computations round in float32, in another order; a tensor in another's place is off by a thousand times that."""


def main(folder: Path) -> dict[str, object]:
    """What plain PyTorch and the reader say of the trained model.

    Raises:
        VerificationFailed: their logits differ.
    """
    manifest = open_archive((folder / LlmC.program).read_bytes()).manifest
    export_llmc(folder / "model.safetensors", manifest, folder / TRAINED)
    raw = np.fromfile(folder / "held-out.records", dtype=np.uint8).reshape(-1, manifest.records.record_bytes)
    tokens, targets = raw[:, :-1].astype(np.int64), raw[:, 1:].astype(np.int64)
    plain = GPT2(config_from_metadata(manifest.metadata))
    plain.load_state_dict(load_file(folder / "model.safetensors"))
    with torch.no_grad():
        wanted = plain.eval()(torch.from_numpy(tokens)).numpy()
    found = Model(folder / TRAINED).logits(tokens)
    return {
        **plain_check.main(folder),
        "start_loss": mean_loss(Model(folder / START).logits(tokens), targets),
        "reader_loss": mean_loss(found, targets),
        "logits": wanted.size,
        "difference": same(found, wanted),
    }


def same(found: NDArray[Any], wanted: NDArray[Any]) -> float:
    """Largest difference of two logits.

    Raises:
        VerificationFailed: it is more than rounding.
    """
    difference = float(np.abs(found - wanted).max()) if found.shape == wanted.shape else float("inf")
    if not difference <= TOLERANCE:
        raise VerificationFailed(
            f"logits of {TRAINED} and of the exported model differ by {difference:.2g}", code="llmc-logits-differ"
        )
    return difference


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))
