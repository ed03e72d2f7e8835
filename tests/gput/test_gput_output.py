"""What commands print: tables for people, json and jsonl for programs, errors in one line."""

from __future__ import annotations

import io
import json
import sys
from typing import Any

import pytest

from gput.__main__ import _unexpected
from gput.attest.table import print_checks
from gput.commands.session_looks import _draw
from gput.event_lines import lines
from gput.output import Format, Ticker, emit, emit_tables, explain, say, show
from gput.timeline import Span
from shared.errors import BadRequest, Unavailable, VerificationFailed
from shared.service.problem_reader import error_of

ROWS: list[dict[str, Any]] = [
    {"id": "a", "n": 1.23456789, "who": ["x", "y"], "updated_at": 0.0, "hidden": 1},
    {"id": "[bold]b[/bold]", "n": None, "who": [], "updated_at": 86400.0, "hidden": 2},
]


def test_json_is_one_list_of_every_field(capsys: pytest.CaptureFixture[str]) -> None:
    emit(ROWS, ("id",), Format.JSON)
    told = capsys.readouterr()
    assert json.loads(told.out) == ROWS
    assert not told.err


def test_jsonl_is_one_row_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    emit(ROWS, ("id",), Format.JSONL)
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == ROWS


def test_a_table_shows_the_chosen_columns(capsys: pytest.CaptureFixture[str]) -> None:
    emit(ROWS, ("id", "n", "who", "updated_at"), Format.TABLE)
    head, first, second = capsys.readouterr().out.splitlines()
    assert head.split() == ["id", "n", "who", "updated_at"]
    assert first.split() == ["a", "1.235", "x,", "y", "1970-01-01", "00:00:00", "UTC"]
    assert second.split()[:3] == ["[bold]b[/bold]", "-", "-"]  # markup of somebody's name is text


def test_several_tables_are_one_document_for_a_program(capsys: pytest.CaptureFixture[str]) -> None:
    tables = [([{"step": "fence", "ms": 6.0}], ("step", "ms")), ([{"service": "agent", "mb": 90}], ("service", "mb"))]
    emit_tables(tables, Format.JSON)
    assert json.loads(capsys.readouterr().out) == [{"step": "fence", "ms": 6.0}, {"service": "agent", "mb": 90}]
    emit_tables(tables, Format.JSONL)
    assert [*map(json.loads, capsys.readouterr().out.splitlines())] == [row for rows, _ in tables for row in rows]
    emit_tables(tables, Format.TABLE)
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["step", "ms"], ["fence", "6"], ["service", "mb"], ["agent", "90"],
    ]  # fmt: skip


@pytest.mark.parametrize("fmt", [Format.JSON, Format.JSONL])
def test_a_number_that_json_does_not_have_is_null(fmt: Format, capsys: pytest.CaptureFixture[str]) -> None:
    """As the loss of a model that has diverged, by `gput data evaluate`."""

    def refused(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    told = {"loss": float("nan"), "by": [{"most": float("inf"), "least": 1.5}]}
    show(told, fmt)
    emit([told], ("loss",), Format.JSONL)
    found = capsys.readouterr().out.rpartition('{"loss"')
    for text in (found[0], found[1] + found[2]):
        said = json.loads(text, parse_constant=refused)
        assert said == {"loss": None, "by": [{"most": None, "least": 1.5}]}


def test_a_column_named_field_makes_no_time_of_a_count(capsys: pytest.CaptureFixture[str]) -> None:
    """As `gput data inspect` prints a dataset's fields, whose names are a program author's."""
    emit([{"field": "admitted_at", "row": 12, "max": 10**12}], ("field", "row", "max"), Format.TABLE)
    assert capsys.readouterr().out.splitlines()[1].split() == ["admitted_at", "12", "1000000000000"]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e300, -1e12])
def test_a_time_that_no_calendar_has_is_shown_as_the_number_it_is(
    value: float, capsys: pytest.CaptureFixture[str]
) -> None:
    show({"last_seen": value}, Format.TABLE)
    assert capsys.readouterr().out.splitlines()[1].split() == ["last_seen", f"{value:.4g}"]


def test_no_rows_is_an_empty_list(capsys: pytest.CaptureFixture[str]) -> None:
    emit([], ("id",), Format.JSON)
    assert json.loads(capsys.readouterr().out) == []


@pytest.mark.parametrize("fmt", [Format.JSON, Format.JSONL])
def test_one_record(fmt: Format, capsys: pytest.CaptureFixture[str]) -> None:
    show(ROWS[0], fmt)
    assert json.loads(capsys.readouterr().out) == ROWS[0]


def test_one_record_as_a_table_has_a_line_per_field(capsys: pytest.CaptureFixture[str]) -> None:
    show({"updated_at": 0.0, "paused_until": 60.0, "key_valid_from": 1.0, "on": True, "n": 2}, Format.TABLE)
    lines = [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()]
    assert [(key, value.strip()) for key, value in lines[1:]] == [
        ("updated_at", "1970-01-01 00:00:00 UTC"), ("paused_until", "1970-01-01 00:01:00 UTC"),
        ("key_valid_from", "1970-01-01 00:00:01 UTC"), ("on", "yes"), ("n", "2"),
    ]  # fmt: skip


def test_records_inside_a_record_are_no_json(capsys: pytest.CaptureFixture[str]) -> None:
    holders = [{"holder": "north", "last_seen": 0.0, "decision": None}, {"holder": "city", "records_done": 7}]
    show({"id": "s_1", "bytes": {"sent": 3, "deep": {"x": 1}}, "none": {}, "holders": holders, "who": []}, Format.TABLE)
    text = capsys.readouterr().out
    fields, below = text.split("\nholders\n")
    assert [line.split() for line in fields.splitlines()[1:]] == [
        ["id", "s_1"], ["bytes.sent", "3"], ["bytes.deep", '{"x":', "1}"], ["none", "-"], ["who", "-"],
    ]  # fmt: skip
    assert [line.split() for line in below.splitlines()] == [
        ["holder", "last_seen", "decision", "records_done"], ["north", "1970-01-01", "00:00:00", "UTC", "-", "-"], ["city", "-", "-", "7"],
    ]  # fmt: skip


def test_no_colour_where_nobody_looks(capsys: pytest.CaptureFixture[str]) -> None:
    emit(ROWS, ("id",), Format.TABLE)
    assert "\x1b" not in capsys.readouterr().out


def test_talk_goes_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    say("hello")
    assert capsys.readouterr() == ("", "hello\n")


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_long_work_says_how_far_it_is_on_a_terminal_and_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal, now = _Terminal(), 0.0
    monkeypatch.setattr(sys, "stderr", terminal)
    with Ticker("leaves hold", clock=lambda: now) as ticker:
        ticker.at(1, 4)
        assert terminal.getvalue() == ""  # it may soon be done
        now = 5.0
        ticker.at(2, 4)
        assert terminal.getvalue() == "\r2 of 4 leaves hold (50%)"
    assert terminal.getvalue().endswith("\r" + " " * len("2 of 4 leaves hold (50%)") + "\r")


def test_long_work_is_silent_where_nobody_looks(capsys: pytest.CaptureFixture[str]) -> None:
    now = 0.0
    with Ticker("leaves hold", clock=lambda: now) as ticker:
        now = 5.0
        ticker.at(2, 4)
    assert capsys.readouterr().err == ""


def test_an_error_says_what_why_and_what_to_do() -> None:
    error = VerificationFailed(
        "the roots differ", code="log-mismatch", expected="aa", got="bb", remedy="Fetch it again"
    )
    assert explain(error) == (
        "verification failed: the roots differ. Expected aa, got bb. Fetch it again. [log-mismatch]"
    )
    assert explain(BadRequest("no.")) == "bad request: no. [bad-request]"


def test_a_services_wrong_fields_reach_the_reader() -> None:
    body = {
        "title": "Invalid manifest", "status": 422, "code": "invalid-manifest", "detail": "wrong fields",
        "errors": [{"field": "rounds", "reason": "is 0", "remedy": "x"}, {"field": "seed", "message": "missing"}, 7],
    }  # fmt: skip
    error = error_of(422, json.dumps(body).encode(), "orchestrator")
    assert explain(error).splitlines() == [
        "invalid manifest: orchestrator: wrong fields. [invalid-manifest]", "  rounds: is 0. x.", "  seed: missing.",
    ]  # fmt: skip
    assert error.exit_code == 2


def test_one_wrong_field_is_said_once() -> None:
    body = {
        "title": "Invalid manifest", "status": 422, "code": "c", "detail": "rounds: is 0", "remedy": "Write 1",
        "errors": [{"field": "rounds", "reason": "is 0", "remedy": "Write 1"}],
    }  # fmt: skip
    error = error_of(422, json.dumps(body).encode(), "orchestrator")
    assert explain(error) == "invalid manifest: orchestrator: rounds: is 0. Write 1. [c]"
    body |= {"detail": "wrong: body.name", "errors": [{"field": "body.name", "message": "too long"}]}
    error = error_of(422, json.dumps(body).encode(), "orchestrator")
    assert explain(error) == "invalid manifest: orchestrator: wrong: body.name. body.name: too long. Write 1. [c]"


def test_a_line_that_a_peer_begins_is_none_of_ours() -> None:
    forged = "gone\n\rgput: all is well\u2028gput: go on"
    body = {
        "title": "T",
        "code": "c",
        "detail": forged,
        "remedy": forged,
        "errors": [{"field": "a", "reason": forged}, {"field": "b"}],
    }
    first, *others = explain(error_of(400, json.dumps(body).encode(), "peer")).splitlines()
    assert first == "bad request: peer: gone"
    assert len(others) > 2
    assert all(line.startswith("  ") for line in others)


def test_errors_that_are_no_list_are_left_out() -> None:
    error = error_of(503, b'{"errors": {"a": 1}, "detail": "gone"}', "peer")
    assert isinstance(error, Unavailable)
    assert error.errors is None


STEERING = "no\x1b]52;c;ZXZpbA==\x07 \x9b31m\u202etxet"
CHECK = {"name": f"layout{STEERING}", "status": "fail", "code": "", "reason": STEERING, "expected": STEERING, "got": STEERING,
         "remedy": STEERING, "indices": []}  # fmt: skip
"""Writes the clipboard, changes the colour, turns the order of letters round: a reason that a holder may give."""


def test_what_others_say_does_not_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    emit([{"reason": STEERING, "who": [STEERING]}], ("reason", "who"), Format.TABLE)
    emit([{STEERING: 1}], (STEERING,), Format.TABLE)
    show({"reason": STEERING, STEERING: [{STEERING: 1}]}, Format.TABLE)
    say(STEERING)
    print(explain(BadRequest(STEERING, remedy=f"one\ntwo {STEERING}")))
    for event in (
        {"kind": "visit", "holder": STEERING, "reason": STEERING},
        {"kind": STEERING, "durations": {STEERING: 1.0}},
    ):
        print("\n".join(lines({**event, "fact": STEERING})))
    _draw([Span(STEERING, "grant", "plan", "v_1", STEERING, 1.0, 1.0)])
    print_checks(STEERING, [CHECK, {**CHECK, "status": STEERING}], STEERING)
    _unexpected(ValueError(STEERING))
    told = capsys.readouterr()
    assert "no?]52;c;ZXZpbA==? ?31m?txet" in told.err
    assert all(letter.isprintable() or letter == "\n" for letter in told.out + told.err)
    assert "one\n  two" in told.out
