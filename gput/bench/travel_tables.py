"""The tables of `gput bench travel`: counters, seconds and predictions, shares, buffers, the publication's rows. Arithmetic on a study."""

from __future__ import annotations

from typing import Any

from gput.bench.published import CHUNK_BYTES, ROWS, share
from gput.bench.travelling import Study, Way, label, place

COUNTER_COLUMNS = (
    "way", "link", "buffer", "between_vms", "× buffer", "trips_between", "holder_gpu", "orchestrator_gpu", "trips_gpu", "seal+open",
)  # fmt: skip
SECONDS_COLUMNS = (
    "link", "buffer", "conventional_s", "predicted_s", "error", "travelling_s", "predicted_there_s", "error_there", "ratio",
)  # fmt: skip
SHARE_COLUMNS = ("link", "buffer", "train_s", "conventional_share", "travelling_share")
BUFFER_COLUMNS = ("link", "records", "buffer", "visits", "conventional_s", "travelling_s", "ratio")
PAPER_COLUMNS = (
    "link", "paper_conventional_s", "paper_travelling_s", "paper_ratio", "paper_shares", "here_conventional_s", "here_travelling_s",
    "here_ratio", "here_shares",
)  # fmt: skip


def counters(study: Study) -> list[dict[str, Any]]:
    """Bytes, round trips and operations of one transfer, for each way, rate and buffer: these do not depend on the machine."""
    return [
        {
            "way": one.way.value, "link": label(one.rate), "buffer": one.length, "between_vms": round(one.between.bytes),
            "× buffer": _digits(one.between.bytes / one.length), "trips_between": _digits(one.between.turns),
            "holder_gpu": round(one.holder_gpu.bytes), "orchestrator_gpu": round(one.orchestrator_gpu.bytes),
            "trips_gpu": _digits(one.holder_gpu.turns + one.orchestrator_gpu.turns), "seal+open": _digits(one.operations),
            "transfers": one.count, "holder_timers_s": one.holder_s,
        }
        for one in study.cells
    ]  # fmt: skip


def seconds(study: Study) -> list[dict[str, Any]]:
    """What was measured, what the model predicts of it, and by how much it misses (`calibrated`: it was told that cell)."""
    rows = []
    for length in study.lengths:
        for rate in study.rates:
            shared, travelled = (study.cell(way, rate, length) for way in Way)
            predicted = {way: study.models[way].predict(rate, length) for way in Way}
            rows.append({
                "link": label(rate), "buffer": length, "conventional_s": _digits(shared.seconds),
                "predicted_s": _digits(predicted[Way.CONVENTIONAL]), "error": _percent(study.error(shared)),
                "travelling_s": _digits(travelled.seconds), "predicted_there_s": _digits(predicted[Way.TRAVELLING]),
                "error_there": _percent(study.error(travelled)), "ratio": _digits(shared.seconds / travelled.seconds),
            })  # fmt: skip
    return rows


def shares(study: Study) -> list[dict[str, Any]]:
    """Transfer's share of transfer and training, with the training that was measured here: a tiny model, so a large share."""
    rows = []
    for rate in study.rates:
        length = study.lengths[-1]
        shared, travelled = (study.cell(way, rate, length) for way in Way)
        train_s = travelled.train_s or 0.0
        rows.append({
            "link": label(rate), "buffer": length, "train_s": _digits(train_s),
            "conventional_share": _percent(share(shared.seconds, train_s)), "travelling_share": _percent(share(travelled.seconds, train_s)),
        })  # fmt: skip
    return rows


def buffers(study: Study) -> list[dict[str, Any]]:
    """The same records through buffers of different size: visits × what a transfer took, over the uncapped link."""
    records = study.lengths[-1]
    rows = []
    for length in study.lengths:
        visits = -(-records // length)
        shared, travelled = (visits * study.cell(way, None, length).seconds for way in Way)
        rows.append({
            "link": label(None), "records": records, "buffer": length, "visits": visits, "conventional_s": _digits(shared),
            "travelling_s": _digits(travelled), "ratio": _digits(shared / travelled),
        })  # fmt: skip
    return rows


def beside(study: Study) -> list[dict[str, Any]]:
    """The publication's rows, and what our model says of a chunk of that size here: extrapolated, never measured, other hardware.

    Shares are conventional and travelling, in per cent; ours are at the publication's intensity of compute, which this machine has not.
    """
    rows = []
    for rate, row in ROWS.items():
        shared, travelled = (study.models[way].predict(rate, CHUNK_BYTES) for way in Way)
        theirs = share(row.conventional_s, row.conventional_train_s), share(row.travelling_s, row.travelling_train_s)
        rows.append({
            "link": label(rate), "paper_conventional_s": row.conventional_s, "paper_travelling_s": row.travelling_s,
            "paper_ratio": _digits(row.ratio), "paper_shares": _pair(*theirs), "here_conventional_s": _digits(shared),
            "here_travelling_s": _digits(travelled), "here_ratio": _digits(shared / travelled),
            "here_shares": _pair(share(shared), share(travelled)), "here": "predicted",
        })  # fmt: skip
    return rows


def named(study: Study) -> dict[str, float]:
    """The same as figures by name."""
    found: dict[str, float] = {}
    for one in study.cells:
        found |= {f"{one.name}.s": one.seconds, f"{one.name}.between_bytes": one.between.bytes}
        error = study.error(one)
        if error is not None:
            found[f"{one.name}.miss"] = abs(error)
    for rate in study.rates:
        for length in study.lengths:
            shared, travelled = (study.cell(way, rate, length).seconds for way in Way)
            found[f"ratio.{place(rate, length)}"] = shared / travelled
    return found


def _digits(value: float) -> float:
    """Four digits that count."""
    return float(f"{value:.4g}")


def _percent(value: float | None) -> str:
    return "calibrated" if value is None else f"{value * 100:+.1f} %" if value < 0 else f"{value * 100:.3g} %"


def _pair(first: float, second: float) -> str:
    return f"{first * 100:.3g} / {second * 100:.3g} %"
