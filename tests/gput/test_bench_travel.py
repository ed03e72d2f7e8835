"""`gput bench travel` and `gput bench ablation`: the bucket, the models and the tables, all of them sums."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from gput.bench import ablation, travel_tables, travelling
from gput.bench.ablation import Chained, Path
from gput.bench.bucket import FRAME_BYTES, GRAIN_S, Bucket, bytes_per_s
from gput.bench.figures import figures
from gput.bench.published import CHUNK_BYTES, ROWS
from gput.bench.timeline import Stages, bounds, one_by_one, overlapped
from gput.bench.travelling import Cell, Line, Model, Study, Traffic, Way
from shared.crypto.chains import dependent_steps
from shared.errors import BadRequest

RATES = (None, 500, 20, 4)
LENGTHS = (250_000, 1_000_000, 4_000_000)
CHUNK = 2_000_000
VISIT_BYTES = 20_000
"""What a made-up visit sends over the link between the virtual machines, whatever it carries."""


# ---------------------------------------------------------------- bucket


@pytest.mark.parametrize("mbit", [4, 20, 100, 500])
@pytest.mark.parametrize("piece", [100, 5000, 3_000_000])
def test_a_bucket_passes_its_rate_and_no_more(mbit: float, piece: int) -> None:
    rate = mbit * 125_000
    bucket, now, sent = Bucket(rate), 0.0, 0
    while sent < 10_000_000:
        now += bucket.take(piece, now)
        sent += piece
    depth = max(FRAME_BYTES, rate * GRAIN_S)
    assert (sent - depth) / rate <= now + 1e-9
    assert now <= sent / rate


def test_who_wakes_late_catches_up_by_a_grain_at_most() -> None:
    bucket = Bucket(1_000_000)
    assert bucket.depth == 2000
    assert bucket.take(2000, 0.0) == 0.0
    assert bucket.take(1000, 0.0) == pytest.approx(0.001)
    assert bucket.take(1000, 5.0) == 0.0  # a long pause fills it, but not above its depth
    assert bucket.take(2000, 5.0) == pytest.approx(0.001)


def test_those_who_share_a_bucket_pass_one_after_another() -> None:
    bucket = Bucket(1_000_000)
    waits = [bucket.take(10_000, 0.0) for _ in range(3)]
    assert waits == [pytest.approx(0.008), pytest.approx(0.018), pytest.approx(0.028)]


def test_a_new_rate_forgives_what_is_owed() -> None:
    bucket = Bucket(1000)
    assert bucket.take(100_000, 0.0) > 90
    bucket.set_rate(None, 1.0)
    assert (bucket.take(10**9, 1.0), bucket.depth) == (0.0, 0.0)
    bucket.set_rate(2_000_000, 2.0)
    assert bucket.take(6000, 2.0) == pytest.approx(0.001)


@pytest.mark.parametrize("rate", [0, -1.0])
def test_a_bucket_without_a_rate_is_refused(rate: float) -> None:
    with pytest.raises(ValueError, match="above zero"):
        Bucket(rate)
    with pytest.raises(ValueError, match="above zero"):
        Bucket().set_rate(rate, 0.0)


# ---------------------------------------------------------------- model


def seconds(way: Way, rate: float | None, length: int) -> float:
    """A machine whose conventional transfers take 10 ms and 40 ns a byte, its visits 100 ms and 10 ns a byte; nothing overlaps."""
    per_s = bytes_per_s(rate)
    if way is Way.CONVENTIONAL:
        return 0.01 + 40e-9 * length + ((length + 3000) / per_s if per_s else 0.0)
    return 0.1 + 10e-9 * length + (VISIT_BYTES / per_s if per_s else 0.0)


def cell(way: Way, rate: float | None, length: int) -> Cell:
    crossing = (
        Traffic(length + 2000, 1000, 3) if way is Way.CONVENTIONAL else Traffic(VISIT_BYTES / 2, VISIT_BYTES / 2, 9)
    )
    direct, behind = Traffic(length + 5000, 100, 2), Traffic(4000, 6000, 5)
    return Cell(way, rate, length, 3, seconds(way, rate, length), crossing, direct, behind, 4.0, 0.5, 0.01)


def study(**changes: Any) -> Study:
    cells = [cell(way, rate, length) for way in Way for rate in RATES for length in LENGTHS]
    return Study.of(cells, changes.get("chunk", 10**9))


def test_the_model_knows_two_cells_of_each_way_and_finds_the_others() -> None:
    found = study()
    told = [one for one in found.cells if found.calibrates(one)]
    assert [(one.way, one.rate, one.length) for one in told] == [
        (way, None, length) for way in Way for length in (LENGTHS[0], LENGTHS[-1])
    ]
    errors = [found.error(one) for one in found.cells if one not in told]
    assert len(errors) == len(found.cells) - 4
    assert all(error is not None and abs(error) < 1e-9 for error in errors)


def test_a_miss_is_shown_and_not_tuned_away() -> None:
    odd = replace(cell(Way.TRAVELLING, 20, LENGTHS[1]), seconds=1.0)
    cells = [
        odd if (one.way, one.rate, one.length) == (odd.way, odd.rate, odd.length) else one for one in study().cells
    ]
    found = Study.of(cells, 10**9)
    assert found.models == study().models
    assert found.error(odd) == pytest.approx(seconds(Way.TRAVELLING, 20, LENGTHS[1]) - 1)
    row = next(row for row in travel_tables.seconds(found) if (row["link"], row["buffer"]) == ("20M", LENGTHS[1]))
    assert (row["travelling_s"], row["error_there"]) == (1.0, "-88.2 %")
    assert row["error"].endswith("%")
    assert row["error"] != "calibrated"


def test_all_but_one_records_work_hides_behind_the_wire_or_the_wire_behind_it() -> None:
    model = Model(Line(0.01, 1e-6), Line(0.0, 1.0), chunk=100_000)
    assert model.predict(None, 1_000_000) == pytest.approx(0.01 + 1.0)
    assert model.predict(4, 1_000_000) == pytest.approx(
        0.01 + 0.1 + 2.0
    )  # the wire takes 2 s, the other nine records' work 0.9
    assert model.predict(20, 1_000_000) == pytest.approx(0.01 + 0.1 + 0.9)  # the wire takes 0.4 s
    assert model.predict(4, 100_000) == pytest.approx(0.01 + 0.1 + 0.2)  # one record: nothing to hide behind
    turns = Model(Line(0.01, 1e-6), Line(0.0, 1.0), chunk=None)
    assert turns.predict(20, 1_000_000) == pytest.approx(0.01 + 1.0 + 0.4)


@pytest.mark.parametrize("kept", [
    lambda one: one.rate is not None,  # nothing uncapped
    lambda one: one.length == LENGTHS[0],  # one length
    lambda one: one.way is Way.TRAVELLING,  # one way
])  # fmt: skip
def test_too_little_to_calibrate_on_is_refused(kept: Any) -> None:
    with pytest.raises(BadRequest) as caught:
        Study.of([one for one in study().cells if kept(one)], CHUNK)
    assert caught.value.code == "nothing-to-calibrate"


def test_a_line_neither_falls_nor_starts_below_zero() -> None:
    assert Line.through(1, 5.0, 2, 4.0) == Line(5.0, 0.0)
    assert Line.through(1, 1.0, 2, 3.0) == Line(0.0, 2.0)
    assert Line.through(2, 3.0, 4, 4.0).at(6) == pytest.approx(5.0)


# ---------------------------------------------------------------- tables


def test_tables_have_what_they_promise() -> None:
    found = study()
    tables = {
        travel_tables.COUNTER_COLUMNS: travel_tables.counters(found), travel_tables.SECONDS_COLUMNS: travel_tables.seconds(found),
        travel_tables.SHARE_COLUMNS: travel_tables.shares(found), travel_tables.BUFFER_COLUMNS: travel_tables.buffers(found),
        travel_tables.PAPER_COLUMNS: travel_tables.beside(found),
    }  # fmt: skip
    for columns, rows in tables.items():
        assert rows
        assert all(set(columns) <= set(row) for row in rows)
        assert json.loads(json.dumps(rows)) == rows
    assert [len(rows) for rows in tables.values()] == [24, 12, 4, 3, 5]


def test_counters_are_of_one_transfer() -> None:
    rows = travel_tables.counters(study())
    last = rows[-1]
    assert (last["way"], last["link"], last["buffer"]) == ("travelling", "4M", LENGTHS[-1])
    assert (last["between_vms"], last["× buffer"], last["trips_between"]) == (VISIT_BYTES, 0.005, 9)
    assert (last["holder_gpu"], last["orchestrator_gpu"], last["trips_gpu"]) == (LENGTHS[-1] + 5100, 10_000, 7)


def test_small_buffers_take_more_visits() -> None:
    rows = travel_tables.buffers(study())
    assert [row["visits"] for row in rows] == [16, 4, 1]
    free = [seconds(Way.TRAVELLING, None, length) for length in LENGTHS]
    assert [row["travelling_s"] for row in rows] == [
        pytest.approx(visits * each, rel=1e-3) for visits, each in zip((16, 4, 1), free, strict=True)
    ]


def test_the_publications_rows_stand_beside_predictions_that_say_so() -> None:
    rows = travel_tables.beside(study())
    assert [row["link"] for row in rows] == ["4M", "20M", "100M", "500M", "uncapped"]
    assert [round(row["paper_ratio"]) for row in rows] == [1105, 224, 59, 16, 7]
    assert rows[0]["paper_shares"] == "47.6 / 0.082 %"
    assert {row["here"] for row in rows} == {"predicted"}
    assert rows[-1]["here_travelling_s"] == pytest.approx(seconds(Way.TRAVELLING, None, CHUNK_BYTES), rel=1e-3)
    assert all(row.travelling_s < row.conventional_s for row in ROWS.values())


def test_every_figure_is_defined() -> None:
    named = travel_tables.named(study())
    kept = figures("travel", [named])
    assert {one.unit for one in kept.values()} == {"s", "B", "share", "times"}
    assert {name for name in named if name.endswith(".miss")} == {
        f"{one.name}.miss" for one in study().cells if not study().calibrates(one)
    }


# ---------------------------------------------------------------- ablation

STAGES = Stages(seal=1.0, send=2.0, upload=4.0, fixed=0.5)


@pytest.mark.parametrize(("stages", "records", "seconds"), [
    (STAGES, 1, 7.5),  # one record: nothing to overlap with
    (STAGES, 3, 0.5 + 1 + 2 + 3 * 4),  # the longest stage works without a pause
    (Stages(1.0, 4.0, 2.0, 0.5), 3, 0.5 + 1 + 3 * 4 + 2),
    (Stages(4.0, 1.0, 2.0, 0.5), 3, 0.5 + 3 * 4 + 1 + 2),
    (Stages(1.0, 2.0, 0.0, 0.0), 3, 1 + 3 * 2),
])  # fmt: skip
def test_overlapped_stages_take_as_long_as_the_longest_and_the_ends(
    stages: Stages, records: int, seconds: float
) -> None:
    assert overlapped(stages, records) == pytest.approx(seconds)


@pytest.mark.parametrize("records", [1, 2, 9])
@pytest.mark.parametrize("stages", [STAGES, Stages(0.3, 0.2, 0.1), Stages(0.0, 5.0, 1.0), Stages(1.0, 1.0, 1.0, 3.0)])
def test_no_timeline_leaves_its_bounds(stages: Stages, records: int) -> None:
    least, most = bounds(stages, records)
    assert least <= overlapped(stages, records) <= most == one_by_one(stages, records)


@pytest.mark.parametrize(("values", "half"), [
    ([2.0], (2.0, 2.0)), ([1.0, 3.0], (1.5, 2.5)), ([9.0, 1.0, 2.0, 3.0, 4.0], (2.0, 4.0)),
])  # fmt: skip
def test_the_middle_half_leaves_out_who_is_far_off(values: list[float], half: tuple[float, float]) -> None:
    assert travelling.middle(values) == half


def test_a_switch_without_a_gain_is_said_to_have_none() -> None:
    measured = [
        Path("re-encrypt", False, 20.0, (19.0, 21.0), 12), Path("re-encrypt", True, 15.0, (12.0, 19.5), 12),
        Path("direct", True, 8.0, (7.0, 9.0), 6), Path("direct", False, 25.0, (24.0, 26.0), 6),
        Path("direct", False, 19.8, (19.7, 19.9), 6),
    ]  # fmt: skip
    rows = ablation.paths(STAGES, 3, 3000, measured)
    assert [row["verdict"] for row in rows] == [
        "the base", "no gain on this machine", "gain", "slower on this machine", "no gain on this machine",
    ]  # fmt: skip
    assert [row["timeline_s"] for row in rows] == [21.5, 15.5, 7.5, 9.5, 9.5]
    assert [row["overlap"] for row in rows] == ["off", "on", "on", "off", "off"]
    assert (rows[1]["miss"], rows[1]["at_least_s"], rows[1]["at_most_s"]) == ("+3.3 %", 12.5, 21.5)
    cells = {
        mode: replace(cell(Way.TRAVELLING, None, 3000), seconds=s) for mode, s in (("scoped", 1.0), ("direct", 0.5))
    }
    visits = ablation.visits(cells, {"scoped": False, "direct": True})
    assert [(row["mode"], row["loads_ahead"], row["gain"]) for row in visits] == [
        ("scoped", False, 1.0),
        ("direct", True, 2.0),
    ]
    assert {one.unit for one in figures("ablation", [ablation.named(rows, visits)]).values()} == {"s"}


def test_chains_are_held_against_one_chain_by_the_same_rule() -> None:
    def chained(number: int, *seconds: float) -> Chained:
        return Chained(number, 3000, seconds, dependent_steps(1024, number), number * 4)

    rows = ablation.chains([chained(1, 7.0, 8.0, 9.0), chained(2, 7.5, 7.9, 8.5), chained(4, 3.9, 4.0, 4.1)])
    assert [row["verdict"] for row in rows] == ["the base", "no gain on this machine", "gain"]
    assert [(row["chains"], row["dependent_steps"], row["tags"]) for row in rows] == [
        (1, 64, 4),
        (2, 32, 8),
        (4, 16, 16),
    ]
    assert set(ablation.CHAIN_COLUMNS) <= set(rows[0])
    named = ablation.named([], [], rows)
    assert named == {"direct.chains-1.s": 8.0, "direct.chains-2.s": 7.9, "direct.chains-4.s": 4.0}
    assert {one.unit for one in figures("ablation", [named]).values()} == {"s"}
