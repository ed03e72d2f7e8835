"""A session's events folded into what a watcher sees, and the final page made of recorded views."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from gput.local.demos.texts import Texts
from gput.local.report import page
from gput.local.view import LANE, LiveView, PlainView, Progress, panel
from gput.receipts import verify
from shared.service.event_reader import Event
from tests.gput.gput_samples import Saved


def fact(machine: str, fact: str, **data: Any) -> Event:
    return Event(1, machine, {"fact": fact, "holder": "north", "round": 1, "index": 1, "at": 0.0, **data})


def progress(visits: int = 6) -> Progress:
    return Progress(("north", "city"), 3, visits, started=0.0)


def test_the_gpu_is_at_the_holder_between_grant_and_report() -> None:
    p = progress()
    where = []
    for machine, word in [("visit", "granted"), ("visit", "offered"), ("visit", "reported"), ("visit", "fenced"),
                          ("visit", "verified"), ("training", "trained"), ("training", "closed")]:  # fmt: skip
        p.fold(fact(machine, word), 1.0)
        where.append(p.at)
    assert where == ["north", "north", *["orchestrator"] * 5]
    assert "".join(p.lanes["north"]) == "·█░░░░░"
    assert "".join(p.lanes["city"]) == "░" * 7
    assert "".join(p.lanes["orchestrator"]) == "░░▒▒▒▓▓"
    assert (p.closed, p.doing) == (1, "closed")


def test_a_lane_keeps_what_fits() -> None:
    p = progress()
    for _ in range(LANE + 9):
        p.fold(fact("visit", "offered"), 0.0)
    assert {len(lane) for lane in p.lanes.values()} == {LANE}


def closed(p: Progress, index: int, at: float, now: float | None = None) -> None:
    p.fold(fact("training", "closed", index=index, at=at), at if now is None else now)


def test_time_left_comes_from_the_visits_closed() -> None:
    p = progress(visits=6)
    closed(p, 1, 10.0)
    assert p.left_s(10.0) is None
    closed(p, 2, 12.0)
    closed(p, 3, 14.0)
    assert (p.left_s(14.0), p.left_s(15.5)) == (pytest.approx(6.0), pytest.approx(4.5))
    assert p.left_s(99.0) == 0.0


def test_time_left_after_a_stop_comes_from_what_was_trained_and_not_from_how_fast_that_is_read() -> None:
    """Two visits and a stop of an hour; whoever watches the resumed session reads all that within a moment."""
    p = progress(visits=6)
    closed(p, 1, 10.0, now=5000.0)
    closed(p, 2, 14.0, now=5000.0)
    assert p.left_s(5000.0) == pytest.approx(16.0)
    p.fold(fact("session", "life_opened", at=3600.0), 5000.0)
    closed(p, 3, 3608.0, now=5002.0)
    assert p.left_s(5002.0) == pytest.approx(12.0)


def test_a_visit_that_is_made_again_counts_once() -> None:
    p = progress(visits=6)
    closed(p, 1, 10.0)
    closed(p, 2, 12.0)
    p.fold(fact("session", "life_opened"), 20.0)
    closed(p, 2, 22.0)
    assert p.closed == 2


@pytest.mark.parametrize(("machine", "word"), [
    ("training", "rejected"), ("visit", "recalled"), ("visit", "quarantined"), ("visit", "lost"),
])  # fmt: skip
def test_a_visit_that_fails_is_marked_and_not_counted(machine: str, word: str) -> None:
    p = progress()
    p.fold(fact(machine, word), 1.0)
    assert (p.closed, p.at, p.lanes["orchestrator"][-1]) == (0, "orchestrator", "x")
    assert word in p.doing


def test_losses_go_to_their_holder_and_unknown_events_change_nothing() -> None:
    p = progress()
    p.fold(Event(1, "loss", {"holder": "city", "loss": "2.5"}), 0.0)
    p.fold(Event(2, "loss", {"holder": "stranger", "loss": 9.0}), 0.0)
    before = repr(p)
    p.fold(Event(3, "session", {"fact": "a word of a later version"}), 0.0)
    assert repr(p) == before
    assert list(p.losses["city"]) == [2.5]
    p.fold(fact("training", "closed", validation_after=1.25), 0.0)
    assert p.held_out == 1.25
    p.fold(fact("training", "rejected", validation_after=9.75), 0.0)
    p.fold(fact("session", "tour_judged", stepped=False, validation_after=9.5), 0.0)
    assert p.held_out == 1.25, "of models that were rolled back"
    p.fold(fact("session", "tour_judged", stepped=True, validation_after=1.0), 0.0)
    assert p.held_out == 1.0


def test_plain_lines_come_once_per_closed_visit(capsys: pytest.CaptureFixture[str]) -> None:
    with PlainView(progress(), clock=lambda: 1.0) as view:
        view.show(fact("visit", "offered"))
        view.show(Event(2, "loss", {"holder": "north", "loss": 2.0}))
        view.show(fact("training", "closed", validation_after=1.5))
    told = capsys.readouterr()
    assert told.err.split() == ["visit", "1/6", "round", "1/3", "north", "loss", "2.000", "held-out", "1.500"]
    assert not told.out


def long_running() -> Progress:
    """A session of many visits, so that every figure on the panel is wide and every lane full."""
    p = Progress(("north", "a-hospital-with-a-long-name"), 100, 300, started=0.0)
    for number in range(LANE):
        p.fold(fact("visit", "offered", holder="a-hospital-with-a-long-name", round=99), number * 30.0)
        p.fold(Event(1, "loss", {"holder": "a-hospital-with-a-long-name", "loss": 12.3456}), 0.0)
        closing = fact("training", "closed", validation_after=1.25, round=99, index=number + 1, at=number * 30.0)
        p.fold(closing, number * 30.0)
    return p


def lines_of(p: Progress, now: float, width: int, **options: bool) -> list[str]:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(panel(p, now, width, **options))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize("width", [40, 60, 79, 80, 120, 300])
def test_the_panel_never_wraps(width: int) -> None:
    """A panel that changed its height would flicker and leave lines behind."""
    heights = set()
    for p, now in ((progress(), 0.4), (progress(), 4000.0), (long_running(), 35_000.0)):
        shown = lines_of(p, now, width)
        assert max(cell_len(line) for line in shown) <= width, shown
        heights.add(len(shown) - len(p.lanes))
    assert heights == {5}


def test_the_panel_at_80_columns_says_everything() -> None:
    head, where, *_, last = lines_of(long_running(), 1440.0, 80)
    assert head == "EMULATED: not confidential  round 99/100  visit 49/300  24:00, ~2:05:30 left"
    assert where.split() == ["GPU:", "orchestrator", "closed"]
    assert last == "held-out loss 1.250"
    assert lines_of(progress(), 0.4, 80)[0] == "EMULATED: not confidential  visit 1/6  0 s"


def test_the_losses_stay_where_they_are_while_the_lanes_grow() -> None:
    p, columns = progress(), set()
    for _ in range(LANE + 5):
        p.fold(fact("visit", "offered"), 0.0)
        p.fold(Event(1, "loss", {"holder": "north", "loss": 2.5}), 0.0)
        columns.add(next(line for line in lines_of(p, 1.0, 80) if line.startswith("north")).index("2.500"))
    assert len(columns) == 1
    p.fold(fact("training", "closed"), 0.0)
    assert "█" * (LANE - 1) + "░" in "".join(lines_of(p, 1.0, 80)), "a full lane shows its end"


def test_a_narrow_lane_shows_its_end() -> None:
    p = progress()
    for word in ("offered", *["reported"] * 40):
        p.fold(fact("visit", word), 0.0)
    assert "█" not in "\n".join(lines_of(p, 1.0, 40)[2:-2])


def test_what_goes_on_before_the_first_visit_is_said() -> None:
    p = progress()
    for word, says in (("submitted", "approval"), ("agreed", "waiting for the GPU"), ("started", "attesting"),
                       ("life_opened", "program and model"), ("placed", "channel")):  # fmt: skip
        p.fold(Event(1, "session", {"fact": word}), 0.0)
        assert says in lines_of(p, 1.0, 80)[1]
    assert not any(p.lanes.values())


@pytest.mark.parametrize("interrupted", [False, True])
def test_the_panel_that_stays_behind_promises_nothing(interrupted: bool) -> None:
    p = long_running()
    console = Console(file=io.StringIO(), width=80, force_terminal=True, color_system=None)
    view = LiveView(p, lambda: 35_000.0, console)
    view.__enter__()
    view.show(Event(9, "session", {"fact": "completed"}))
    view.__exit__(KeyboardInterrupt if interrupted else None, None, None)
    assert isinstance(console.file, io.StringIO)
    last = console.file.getvalue().rsplit("EMULATED", 1)[1]
    assert "left" not in last
    assert ("not watched any more" if interrupted else "completed") in last


def test_the_final_page_of_a_recorded_session(saved: Saved, tmp_path: Path) -> None:
    check = {"loss": 1.5, "sample": "def f():\n    pass\x1b[2J" + "x" * 200, "torch": "2"}
    view = {**saved.view, "bytes": {"model_to_holders": 0, **saved.view["bytes"]}}
    found = {
        "view": view, "visits": saved.visits, "links": saved.links, "check": check, "receipts": verify(saved.folder),
    }  # fmt: skip
    holders = [holder["holder"] for holder in saved.view["holders"]]
    text = page(found, Texts(), tmp_path, 12.0)
    assert "EMULATED" in text
    # On a terminal of 80 columns no line wraps, and nothing that the model wrote steers the terminal.
    assert max(cell_len(line) for line in text.splitlines() if str(tmp_path) not in line) <= 80
    assert "\x1b" not in text
    assert "  |     pass·[2Jxxx" in text
    assert f"{saved.view['visits_closed']} visits" in text
    assert f"{verify(saved.folder).receipts} receipts verified" in text
    counts = dict(re.findall(r"^  (holder.*?|  of closed.*?)\s{2,}([\d,]+)$", text, re.MULTILINE))
    data = sum(visit["length"] for visit in saved.visits)
    assert counts["holders → GPU, dataset (of all fenced visits)"] == f"{data:,}"
    assert counts["  of closed visits, by plan: records × record size"] == f"{data:,}"
    assert counts["holders ↔ orchestrator, dataset (holders' own count)"] == "0"
    for step in ("plan", "fence", "train", "control"):
        assert re.search(rf"^  {step}.* +\d+\.\d+ +\d+\.\d+ +\d+\.\d%$", text, re.MULTILINE)
    for holder in holders:
        assert re.search(rf"^  {holder} +\d+\.\d+ +\d+\.\d+", text, re.MULTILINE)


def test_a_collected_tours_visits_close_together_each_under_its_holders_name(
    capsys: pytest.CaptureFixture[str],
) -> None:
    now = [0.0]
    p = progress()
    with PlainView(p, clock=lambda: now[0]) as view:
        for number in (1, 2, 3):
            for holder in ("north", "city"):
                view.show(
                    Event(
                        1, "visit", {"fact": "planned", "visit": f"{holder}{number}", "holder": holder, "round": number}
                    )
                )
            now[0] += 5.0
            view.show(Event(2, "loss", {"visit": f"city{number}", "holder": "", "loss": 4.0 - number}))
            for holder in ("north", "city"):
                data = {"visit": f"{holder}{number}", "index": 2 * number + (holder == "city"), "at": now[0]}
                view.show(Event(3, "training", {"fact": "closed", **data}))
    lines = [line.split() for line in capsys.readouterr().err.splitlines()]
    assert [line[4] for line in lines] == ["north", "city"] * 3
    assert [line[6] for line in lines] == ["3.000"] * 2 + ["2.000"] * 2 + ["1.000"] * 2
    assert ["about" in line for line in lines] == [False] * 2 + [True] * 4, "of the first tour nothing is known yet"
    assert [line[8] for line in lines[2:]] == ["5"] * 2 + ["0"] * 2
    assert not any(p.losses[name] for name in p.holders)
    assert "1.000" in lines_of(p, 15.0, 80)[3], "on the orchestrator's lane"
