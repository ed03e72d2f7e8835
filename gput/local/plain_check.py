"""Loads the exported model into plain PyTorch: held-out loss and a text sample, as JSON on stdout. Knows no service.

A process of its own, because the launcher must not import PyTorch. Usage: python -m gput.local.plain_check FOLDER
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

PROMPT = b"def "
SAMPLE_BYTES = 400


def main(folder: Path) -> dict[str, object]:
    """Held-out loss of `model.safetensors` over `held-out.records` in the plain module, and a sample."""
    import numpy as np
    import torch
    from safetensors.torch import load_file

    from gpu_agent.workload.programs.gpt2 import GPT2, GPT2Config, sample_text
    from shared.claims.archive import open_archive

    manifest = open_archive((folder / "gpt2.gput").read_bytes()).manifest
    sizes = json.loads((folder / "demo.json").read_text())["plan"]
    config = GPT2Config(
        layers=sizes["layers"], heads=sizes["heads"], width=sizes["width"], context=sizes["context"], vocab=256
    )
    tensors = load_file(folder / "model.safetensors")
    model = GPT2(config)
    model.load_state_dict(tensors)
    model.eval()
    raw = np.fromfile(folder / "held-out.records", dtype=np.uint8).reshape(-1, manifest.records.record_bytes)
    tokens = torch.from_numpy(raw.astype(np.int64))
    with torch.no_grad():
        logits = model(tokens[:, :-1])
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), tokens[:, 1:].reshape(-1))
    sample = sample_text(tensors, config, PROMPT, SAMPLE_BYTES, seed=1)
    return {"loss": float(loss), "sample": sample.decode("utf-8", errors="replace"), "torch": torch.__version__}


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))
