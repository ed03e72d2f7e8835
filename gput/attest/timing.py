"""How long judging takes, evidence by evidence: with everything known, as a service that meets its peers again, and with nothing known.

Knows the judges, no output. Times are wall-clock on one thread; files are read and told apart beforehand.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from gput.attest.documents import COMPANIONS, judge
from gput.attest.trust import Wish, load_trust
from shared.attestation.evidence_files import Piece
from shared.attestation.offered import of_kind


def times(pieces: Sequence[Piece], folder: Path | None, wish: Wish, runs: int) -> list[dict[str, Any]]:
    """One row per piece of evidence: its verdict, and median milliseconds warm and cold; the others are its companions."""
    beside = of_kind(pieces, *COMPANIONS)
    return [_row(piece, beside, folder, wish, runs) for piece in pieces if piece.kind not in COMPANIONS]


def _row(piece: Piece, beside: Sequence[Piece], folder: Path | None, wish: Wish, runs: int) -> dict[str, Any]:
    given = [piece, *beside]
    trust = load_trust(folder, given, wish)
    first = judge(given, trust, wish)
    warm = _measured(lambda: judge(given, trust, wish), runs)

    def anew() -> None:
        judge(given, fresh, wish)

    cold = []
    for _ in range(runs):
        _forget()
        fresh = load_trust(folder, given, wish)
        cold += _measured(anew, 1)
    refused = next((one.refusal for one in first if one.refusal is not None), None)
    return {
        "evidence": piece.name, "kind": piece.kind.value, "verdict": "accepted" if refused is None else f"refused [{refused.code}]",
        "checks": sum(len(one.examination.checks) for one in first), "warm_ms": round(statistics.median(warm), 2),
        "cold_ms": round(statistics.median(cold), 2),
    }  # fmt: skip


def _measured(act: Callable[[], object], runs: int) -> list[float]:
    found = []
    for _ in range(runs):
        begun = time.perf_counter()
        act()
        found.append((time.perf_counter() - begun) * 1000)
    return found


def _forget() -> None:
    """Empty every memory of what was verified before."""
    for name, module in list(sys.modules.items()):
        if name.startswith("shared.attestation"):
            for value in vars(module).values():
                if callable(clear := getattr(value, "cache_clear", None)):
                    clear()
