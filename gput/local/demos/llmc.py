"""The demo of llm.c: its model file goes in, is trained by travelling on three private corpora, and comes out. Knows no process.

llm.c is Andrej Karpathy's GPT-2 in C; its model file is the one that `train_gpt2.c` reads and `train_gpt2.py` writes (float32, version 3).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from gput.local.demos.plan import Step
from gput.local.demos.texts import Texts

START, TRAINED = "start.bin", "trained.bin"


@dataclass(frozen=True)
class LlmC(Texts):
    """Small, and of random values: real GPT-2 weights are a download of 500 MB, which a demo must not need."""

    rounds: int = 4
    steps: int = 8
    layers: int = 2
    width: int = 64

    name: ClassVar[str] = "llmc"
    title: ClassVar[str] = "demo: an llm.c model trained on three private corpora"

    @property
    def command(self) -> str:
        return f"gput demo {self.name}"

    def building(self, program: Path) -> Sequence[Step]:
        start, weights = program.with_name(START), program.with_suffix(".safetensors")
        sizes = [f"{value}" for value in (self.layers, self.heads, self.width, self.context, self.seed)]
        importing = ["llmc-import", str(start), "-o", str(weights), "--program", str(program)]
        return [("gput.local.demos.llmc_model", [str(start), *sizes]), ("gput", ["program", *importing])]

    @property
    def judge(self) -> str:
        return "gput.local.demos.llmc_check"

    def result(self, check: Mapping[str, Any]) -> str:
        return "\n".join([
            f"\nllm.c's model file            held-out loss, read as llm.c reads it\n  {START:<28}{check['start_loss']:.4f}",
            f"  {TRAINED:<28}{check['reader_loss']:.4f}   exported model in plain PyTorch {check['loss']:.4f}",
            f"  largest difference of two logits among {check['logits']:,}: {check['difference']:.1e}",
            f"  {START} holds RANDOM values, made for this demo: no real GPT-2 was trained here",
            super().result(check),
        ])  # fmt: skip
