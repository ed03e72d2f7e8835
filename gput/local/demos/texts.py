"""The demo of texts: a byte-level GPT-2 on this machine's Python standard library in three private corpora. Knows no process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from gput.local import corpus
from gput.local.demos.plan import Plan, Step
from shared.claims.training import AdamW, Schedule, TrainingOptions

HOLDERS = ("north", "city", "harbour")
ONE_STEP_A_ROUND = {"rounds": 48, "steps": 1}
"""With gradients accumulated six rounds would be six steps, and train nothing."""
WIDTH = 80
VOCABULARY = 256
"""Texts are bytes."""
SAMPLE_LINES = 14


@dataclass(frozen=True)
class Texts(Plan):
    """What the demo trains. The defaults finish within 90 s on two cores."""

    layers: int = 6
    heads: int = 4
    width: int = 128
    context: int = 64

    name: ClassVar[str] = "text"
    title: ClassVar[str] = "demo: one byte-level GPT-2 on three private corpora"
    holders: ClassVar[tuple[str, ...]] = HOLDERS
    dataset: ClassVar[str] = "corpus"
    program: ClassVar[str] = "gpt2.gput"
    loss_unit: ClassVar[str] = "nats per byte"
    one_step_a_round: ClassVar[Mapping[str, int]] = ONE_STEP_A_ROUND

    @property
    def program_options(self) -> dict[str, str]:
        """Options of the built-in GPT-2."""
        sizes = {"layers": self.layers, "heads": self.heads, "width": self.width, "context": self.context}
        return {name: str(value) for name, value in {**sizes, "vocab": VOCABULARY}.items()}

    @property
    def command(self) -> str:
        return "gput demo"

    def split(self, target: Path) -> None:
        corpus.split(target, self.holders)

    def building(self, program: Path) -> Sequence[Step]:
        options = [f"--option={name}={value}" for name, value in self.program_options.items()]
        return [("gput", ["program", "build", "gpt2", "-o", str(program), *options])]

    @property
    def warmup(self) -> int:
        """Steps of the optimiser, the first of so many."""
        return self.steps if self.accumulate is None else max(1, self.rounds // 4)

    def training(self) -> TrainingOptions:
        return TrainingOptions(
            optimizer=AdamW(lr=2e-3, weight_decay=0.05, betas=(0.9, 0.95)),
            schedule=Schedule(kind="cosine", warmup_steps=self.warmup, final_factor=0.1),
            grad_clip_norm=1.0,
            batch_size=self.batch,
            seed=self.seed,
            threads=2,
        )

    @property
    def judge(self) -> str:
        return "gput.local.plain_check"

    def result(self, check: Mapping[str, Any]) -> str:
        # What a model writes may hold anything, a terminal's control codes, too.
        found = str(check["sample"]).splitlines()[:SAMPLE_LINES]
        lines = ["".join(sign if sign.isprintable() else "·" for sign in line) for line in found]
        return "\n".join(["\nText from the trained model", *("  | " + line[: WIDTH - 4] for line in lines)])
