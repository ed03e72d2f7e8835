"""How long judging takes, evidence by evidence: of a machine met again, of one met first, and with nothing at all known beforehand.

Knows the judges, no output. Times are wall-clock on one thread; files are read and told apart beforehand.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gput.attest.documents import ASKED_BY, COMPANIONS, judge
from gput.attest.judging import learn
from gput.attest.trust import Trust, Wish, load_trust
from shared.attestation.collateral_store import CollateralStore
from shared.attestation.evidence_pieces import FileKind, Piece
from shared.attestation.offered import of_kind
from shared.canonical import sha256


def times(pieces: Sequence[Piece], folder: Path | None, wish: Wish, runs: int) -> list[dict[str, Any]]:
    """One row per piece of evidence: its verdict, and median milliseconds; the others are its companions.

    `warm_ms`: the same machine met again. `met_first_ms`: the makers' manifests and collateral are known, as to a service that has
    started; the machine's own chain is not. `cold_ms`: nothing was verified before.
    """
    beside = of_kind(pieces, *COMPANIONS)
    return [_row(piece, beside, folder, wish, runs) for piece in pieces if piece.kind not in COMPANIONS]


def work(pieces: Sequence[Piece]) -> dict[str, str | int]:
    """What is verified, without anybody's file names: how many pieces, and a digest over all of them."""
    digests = sorted(sha256(piece.data) for piece in pieces)
    return {"pieces": len(pieces), "sha256": sha256(b"".join(digests)).hex()}


def named(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """The rows as figures by name: number and kind of the evidence, and what was measured of it."""
    return {
        f"{number}-{row['kind'].lower().replace(' ', '-')}.{name}": row[name]
        for number, row in enumerate(rows, 1)
        for name in ("warm_ms", "met_first_ms", "cold_ms")
    }


def _row(piece: Piece, beside: Sequence[Piece], folder: Path | None, wish: Wish, runs: int) -> dict[str, Any]:
    given = [piece, *beside]
    trust = load_trust(folder, given, wish)
    # A list beside it that this piece is not looked up in belongs to another one.
    first = [one for one in judge(given, trust, wish) if one.kind not in ASKED_BY]
    warm = _measured(lambda: judge(given, trust, wish), runs)

    def anew(known: Sequence[Piece]) -> float:
        _forget()
        fresh = load_trust(folder, given, wish)
        _learn(known, fresh, wish)
        return _measured(lambda: judge(given, fresh, wish), 1)[0]

    met_first, cold = ([anew(known) for _ in range(runs)] for known in (beside, ()))
    refused = next((one.refusal for one in first if one.refusal is not None), None)
    return {
        "evidence": piece.name, "kind": piece.kind.value, "verdict": "accepted" if refused is None else f"refused [{refused.code}]",
        "checks": sum(len(one.examination.checks) for one in first), "warm_ms": round(statistics.median(warm), 2),
        "met_first_ms": round(statistics.median(met_first), 2), "cold_ms": round(statistics.median(cold), 2),
    }  # fmt: skip


def _measured(act: Callable[[], object], runs: int) -> list[float]:
    found = []
    for _ in range(runs):
        begun = time.perf_counter()
        act()
        found.append((time.perf_counter() - begun) * 1000)
    return found


def _learn(pieces: Sequence[Piece], trust: Trust, wish: Wish) -> None:
    """What a service does with its trust folder at its start; what is not genuine is not learned."""
    learn(pieces, trust.cpu.collateral or CollateralStore({}))
    if manifests := of_kind(pieces, FileKind.DRIVER_RIM, FileKind.VBIOS_RIM):
        judge(manifests, trust, wish)


def _forget() -> None:
    """Empty every memory of what was verified before."""
    for name, module in list(sys.modules.items()):
        if name.startswith("shared.attestation"):
            for value in vars(module).values():
                if callable(clear := getattr(value, "cache_clear", None)):
                    clear()
