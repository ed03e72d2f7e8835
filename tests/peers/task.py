"""What everybody trains: sizes, records of three holders with vocabularies of their own, held-out records, the start. Knows no contestant.

Records lie in the order in which they are trained on, so every contestant takes the same batches of a holder's.
"""

from __future__ import annotations

import json
import random
import string
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

GLUE = ("and", "of", "in", "with", "no", "the")
WORDS, LEAST_LETTERS, MOST_LETTERS = 10, 4, 9


@dataclass(frozen=True)
class Task:
    """`rounds` × `steps` training steps of `batch` records for each of `holders` holders. The model: bytes in, bytes out."""

    rounds: int = 5
    steps: int = 40
    batch: int = 16
    holders: int = 3
    layers: int = 2
    heads: int = 4
    width: int = 64
    context: int = 64
    lr: float = 1e-3
    seed: int = 1
    held_out: int = 64
    """Held-out records of each holder."""

    @property
    def visits(self) -> int:
        """Of all holders."""
        return self.rounds * self.holders

    @property
    def half(self) -> int:
        """Visits after which the kill test kills."""
        return (self.visits + 1) // 2

    @property
    def options(self) -> dict[str, int]:
        """Options of the built-in GPT-2."""
        return {
            "layers": self.layers, "heads": self.heads, "width": self.width, "context": self.context, "vocab": 256,
            "seed": self.seed,
        }  # fmt: skip

    def in_visits_of(self, steps: int) -> Task:
        """The same steps over the same records in other visits. Raises: ValueError: they do not divide so."""
        every = self.rounds * self.steps
        if every % steps:
            raise ValueError(f"{every} steps are not visits of {steps}")
        return replace(self, rounds=every // steps, steps=steps)

    def names(self) -> list[str]:
        """The holders'."""
        return [f"h{number}" for number in range(self.holders)]


def words(holder: int, seed: int) -> list[str]:
    """A holder's own vocabulary."""
    draws = random.Random(f"words {seed} {holder}")
    return [
        "".join(draws.choices(string.ascii_lowercase, k=draws.randint(LEAST_LETTERS, MOST_LETTERS)))
        for _ in range(WORDS)
    ]


def text(holder: int, seed: int, part: str, length: int) -> bytes:
    """Words of a holder's, drawn anew for each part, with words between them that all holders use. ASCII, `length` bytes."""
    draws, own = random.Random(f"{part} {seed} {holder}"), words(holder, seed)
    found: list[str] = []
    size = 0
    while size < length:
        pair = f"{draws.choice(own)} {draws.choice(GLUE)} "
        found.append(pair)
        size += len(pair)
    return "".join(found).encode()[:length]


def records(task: Task, holder: int, part: str, count: int) -> list[bytes]:
    """`count` records of `context` + 1 bytes, windows at drawn places of a text that the windows cover about twice."""
    length = task.context + 1
    corpus = text(holder, task.seed, part, max(length, count * length // 2))
    draws = random.Random(f"{part} windows {task.seed} {holder}")
    starts = (draws.randrange(len(corpus) - length + 1) for _ in range(count))
    return [corpus[start : start + length] for start in starts]


def write(task: Task, folder: Path) -> None:
    """`task.json`, `holder-N.npz` (records to train on), `held-out-N.npz`; each with one array `tokens` (records, context + 1) uint8."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "task.json").write_text(json.dumps(asdict(task)))
    for holder in range(task.holders):
        _save(folder / f"holder-{holder}.npz", records(task, holder, "train", task.rounds * task.steps * task.batch))
        _save(folder / f"held-out-{holder}.npz", records(task, holder, "held out", task.held_out))


def _save(path: Path, found: list[bytes]) -> None:
    import numpy as np

    arrays: dict[str, Any] = {"tokens": np.frombuffer(b"".join(found), dtype=np.uint8).reshape(len(found), -1)}
    np.savez(path, **arrays)
