"""A demo's final page: losses, the demo's own result, bytes per link, timers, steps, files, next commands. Knows the API's views only."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gput.local.demos.plan import Plan
from gput.steps import by_step, closed

TIMERS = ("grab_gpu", "import_key", "buffer_read", "gpu_write", "export_key")


def page(found: Mapping[str, Any], plan: Plan, folder: Path, seconds: float) -> str:
    """The whole page as text."""
    holders = [holder["holder"] for holder in found["view"]["holders"]]
    view, visits = found["view"], closed(found["visits"])
    parts = [
        f"\nDone in {seconds:.0f} s: {view['visits_closed']} visits, {view['step']} training steps.\n"
        f"Backend {view['backend']}: emulated hardware gives no confidentiality.",
        _losses(found, visits, holders, plan.loss_unit),
        plan.result(found["check"]),
        _links(view, visits, found["links"]),
        _timers(visits, holders),
        _steps(visits),
        _files(found, plan, folder),
    ]
    return "\n".join(parts)


def _losses(found: Mapping[str, Any], visits: Sequence[Any], holders: Sequence[str], unit: str) -> str:
    lines = [f"\n{f'Loss ({unit})':<22}   before    after"]
    for name in holders:
        mine = [visit for visit in visits if visit["holder"] == name and visit["losses"]]
        if mine:  # of a collected tour no loss is one holder's
            first, last = mine[0]["losses"][0], mine[-1]["mean_loss"]
            lines.append(f"  {name:<20}{first:>9.3f}{last:>9.3f}   first step, last visit")
    lines += _mixed(found, visits)
    held, plain = found["view"]["validation_loss"], found["check"]["loss"]
    lines.append(f"  {'held-out':<20}{held['first']:>9.3f}{held['last']:>9.3f}")
    lines.append(f"  exported model in plain PyTorch {found['check']['torch']}, held-out: {plain:.3f}")
    return "\n".join(lines)


def _mixed(found: Mapping[str, Any], visits: Sequence[Any]) -> list[str]:
    """Losses of collected tours that were kept: over everybody's records, and told under the last visit of each."""
    kept = {visit["id"] for visit in visits}
    of = [loss for loss in found.get("losses", ()) if not loss["holder"] and loss["visit"] in kept]
    if not of:
        return []
    last = statistics.fmean(loss["loss"] for loss in of if loss["visit"] == of[-1]["visit"])
    return [f"  {'all, mixed':<20}{of[0]['loss']:>9.3f}{last:>9.3f}   first step, last tour"]


def _links(view: Mapping[str, Any], visits: Sequence[Any], links: Sequence[Mapping[str, Any]]) -> str:
    moved = view["bytes"]
    rows = [
        ("holders → GPU, dataset (of all fenced visits)", moved["holder_to_gpu_records"]),
        ("  of closed visits, by plan: records × record size", sum(visit["length"] for visit in visits)),
        ("holders → GPU, proofs that these are the approved records", moved["holder_to_gpu_proofs"]),
        ("holders → GPU, on the wire (sealed)", moved["holder_to_gpu_sent"]),
        ("holders ↔ orchestrator, model (orchestrator's count)", moved["model_to_holders"]),
        ("orchestrator → GPU (program, commands, held-out records)", moved["orchestrator_to_gpu"]),
        ("GPU → orchestrator (sealed checkpoints, export)", moved["gpu_to_orchestrator"]),
    ]
    if links:  # what the holders' own services say, where they can be asked
        total = _sum(links, "bytes_to_orchestrator") + _sum(links, "bytes_from_orchestrator")
        rows[4:4] = [
            ("holders ↔ orchestrator, dataset (holders' own count)", _sum(links, "dataset_bytes_to_orchestrator")),
            ("holders ↔ orchestrator, everything: documents, signatures", total),
        ]
    return "\nBytes per link\n" + "\n".join(f"  {name:<60}{count:>14,}" for name, count in rows)


def _sum(links: Sequence[Mapping[str, Any]], name: str) -> int:
    return sum(int(link[name]) for link in links)


def _timers(visits: Sequence[Any], holders: Sequence[str]) -> str:
    lines = ["\nA visit's timers (median ms)\n" + " " * 16 + "".join(f"{name:>12}" for name in TIMERS)]
    for holder in holders:
        mine = [visit["timers"] for visit in visits if visit["holder"] == holder and visit["timers"]]
        cells = "".join(f"{_median_ms(timers[name] for timers in mine):>12.2f}" for name in TIMERS)
        lines.append(f"  {holder:<14}{cells}")
    return "\n".join(lines)


def _steps(visits: Sequence[Any]) -> str:
    lines = [f"\nA visit's steps (ms){'median':>38}{'p99':>10}{'share':>10}"]
    for row in by_step(visits):
        lines.append(f"  {row['step']:<46}{row['median_ms']:>10.2f}{row['p99_ms']:>10.2f}{row['share']:>10}")
    return "\n".join(lines)


def _median_ms(values: Iterable[float]) -> float:
    found = list(values)
    return statistics.median(found) * 1000 if found else 0.0


def _files(found: Mapping[str, Any], plan: Plan, folder: Path) -> str:
    shown = short(folder)
    return (
        f"\nModel     {shown}/model.safetensors\nReceipts  {shown}/receipts\n"
        f"          {found['receipts'].receipts} receipts verified, log of {found['receipts'].leaves} leaves\n"
        f"\nNext\n  gput receipts verify {shown}/receipts\n  gput program inspect {shown}/{plan.program}\n"
        f"  {plan.command} --rounds {more(plan)}"
    )


def more(plan: Plan) -> int:
    """Rounds to try next: several times as many, and a round number."""
    return max(20, plan.rounds * 3 // 10 * 10)


def summary(found: Mapping[str, Any], plan: Plan, folder: Path, seconds: float) -> dict[str, Any]:
    """The same for programs: what `--format json` prints."""
    view, links = found["view"], found["links"]
    own = {"dataset_bytes_to_orchestrator": _sum(links, "dataset_bytes_to_orchestrator")} if links else {}
    return {
        "demo": plan.name,
        "session": view["id"],
        "backend": view["backend"],
        "seconds": round(seconds, 1),
        "visits": view["visits_closed"],
        "steps": view["step"],
        "held_out_loss": view["validation_loss"],
        "check": found["check"],
        "bytes": {**view["bytes"], **own},
        "receipts": {"verified": found["receipts"].receipts, "leaves": found["receipts"].leaves},
        "model": str(folder / "model.safetensors"),
        "folder": str(folder),
    }


def short(folder: Path) -> str:
    """The folder as it can be typed from here."""
    try:
        return str(folder.relative_to(Path.cwd()))
    except ValueError:
        return str(folder)
