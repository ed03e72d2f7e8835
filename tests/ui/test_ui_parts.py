"""The pages' pure parts, run in the browser that will run them: layout, losses, streams, differences, formats; and reader tokens."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest

from tests.gput.test_curves import BACK, BACK_LOSSES, LATE, PASSED_OVER, TWICE, held_out, many_tours, put_back
from tests.ui.conftest import NewTab
from tests.ui.stage import OWNER_READER, READER, UiStage


@pytest.fixture
def run(page: Any) -> Any:
    """Calls an exported function of a module in a page."""
    code = "async ([module, name, given]) => (await import(`/ui/${module}.js`))[name](...given)"
    return lambda module, name, *given: page.evaluate(code, [module, name, list(given)])


LAID_OUT = """async ([from, to]) => {
  const spans = [];
  for (let n = 0; n < 10000; n += 1) {
    for (const [at, lane] of ["orchestrator", "city"].entries()) {
      spans.push({ visit: `v${n}`, kind: n === 5000 ? "broken" : "train", lane, start: n + at, end: n + at + 0.5 });
    }
  }
  const drawn = (await import("/ui/tour.js")).layOut({ spans }, from, to, 1000);
  const kinds = [...new Set(drawn.map(one => one.kind))].sort();
  return { drawn: drawn.length, spans: drawn.reduce((sum, one) => sum + one.spans.length, 0), kinds,
    within: drawn.every(one => one.x >= 0 && one.x <= 1000 && one.width >= 1.5) };
}"""


def test_ten_thousand_visits_are_few_rectangles(tab: NewTab) -> None:
    page = tab().open()
    found = page.evaluate(LAID_OUT, [0, 10_001])
    assert 100 < found.pop("drawn") < 2000
    assert found == {"spans": 20_000, "kinds": ["broken", "train"], "within": True}
    assert page.evaluate(LAID_OUT, [10, 12])["drawn"] == 6  # three in each lane, one of them at the edge


def test_zoom_and_moves_stay_within_the_tour(run: Any) -> None:
    assert run("tour", "zoomed", [0, 10], 0.5, 0.5, 0, 10) == [2.5, 7.5]
    assert run("tour", "zoomed", [8, 10], 4, 1, 0, 10) == [2, 10]
    assert run("tour", "moved", [8, 10], 0.5, 0, 10) == [8, 10]
    assert run("tour", "moved", [4, 6], -3, 0, 10) == [0, 2]


def visit(holder: str, step: int, *losses: float) -> dict[str, Any]:
    return {"holder": holder, "outcome": "closed", "first_step": step, "losses": list(losses)}


def test_recency_bias_is_the_loss_that_comes_back(run: Any) -> None:
    first, second = [visit("a", 0, 3, 2), visit("b", 2, 3, 2)], [visit("a", 4, 2.6, 2), visit("b", 6, 2.4, 2)]
    assert run("losses", "recency", first)["state"] == "unknown"
    found = run("losses", "recency", [*first, *second])
    assert (found["state"], round(found["share"], 6)) == ("biased", 0.25)
    assert run("losses", "recency", [*first, visit("a", 4, 2.1), visit("b", 6, 2.1)])["state"] == "none"


def test_a_visit_that_was_made_again_after_a_restore_is_no_coming_back(run: Any) -> None:
    first, again = [visit("a", 0, 3, 2), visit("b", 2, 3, 2)], [visit("a", 0, 3.1, 2), visit("b", 2, 3.1, 2)]
    assert run("losses", "recency", [*first, *again])["rows"] == []
    later = [visit("a", 4, 2, 1), visit("b", 6, 2, 1)]
    assert [one["back"] for one in run("losses", "recency", [*first, *later, *again])["rows"]] == [2, 2]
    measured = [
        one | {"steps": 2, "validation_after": loss}
        for one, loss in zip([*first, *again], [5, 4, 5.5, 4.5], strict=True)
    ]
    assert run("losses", "heldOut", measured) == [[2, 5.5], [4, 4.5]]


def test_held_out_losses_of_tours_stand_where_the_tour_ended(run: Any) -> None:
    more = {"steps": 4, "validation_after": None}
    collected = [visit(name, turn * 8) | more | {"validation_after": 2 - turn} for turn in range(2) for name in "ab"]
    assert run("losses", "heldOut", collected) == [[8, 2], [16, 1]]
    accumulated = [
        visit("ab"[n % 2], n * 4) | more | {"round": n // 2 + 1, "index": n + 1, "closed_at": n + 1.0} for n in range(4)
    ]
    judged = [
        {"fact": "tour_judged", "round": n, "stepped": n == 1, "validation_after": 3 - n, "at": 2.0 * n} for n in (1, 2)
    ]
    last = {"fact": "last_checked", "position": 4, "validation_after": 0.5, "at": 5.0}
    assert run("losses", "heldOut", accumulated, [*judged, last]) == [[8, 2], [16, 0.5]]


def test_held_out_losses_stand_where_the_command_line_puts_them(run: Any) -> None:
    """By one rule, whatever a restore took back and whoever joined late: the page's curve is the one that is exported."""
    judged = {"fact": "tour_judged", "round": 1, "stepped": True, "validation_after": 4.0, "at": 400.0}
    last = {"fact": "last_checked", "position": 3, "validation_after": 7.0, "at": 700.0}
    quiet = [one | {"validation_after": None} for one in PASSED_OVER]
    cases: list[tuple[list[dict[str, Any]], list[dict[str, Any]], list[tuple[int, float]]]] = [
        (PASSED_OVER, [BACK], [(3, 2.0), (6, 0.5)]), (PASSED_OVER, [BACK, last], [(3, 2.0), (6, 7.0)]),
        (PASSED_OVER[:2], [last | {"position": 2, "at": 400.0}, BACK], [(3, 2.0)]), (quiet[:2], [judged, BACK], []),
        (quiet[:2], [judged], [(6, 4.0)]), (quiet[:2], [judged, BACK | {"position": 2}], [(6, 4.0)]),
        (quiet, [judged, BACK, judged | {"validation_after": 3.0, "at": 700.0}], [(6, 3.0)]),
        (LATE, TWICE, [(4, 3.0), (6, 2.5)]), ([], [*TWICE, last], []),
    ]  # fmt: skip
    for visits, facts, said in cases:
        assert [tuple(point) for point in run("losses", "heldOut", visits, facts)] == held_out(visits, *facts) == said


def test_losses_that_a_restore_took_back_are_in_no_curve_and_no_bias(run: Any, page: Any) -> None:
    count = """async ([visits, losses, facts]) =>
      [...(await import("/ui/losses.js")).curves(visits, losses, facts)].map(([name, points]) => [name, points.length])"""
    assert page.evaluate(count, [PASSED_OVER, BACK_LOSSES, []]) == [["a", 1], ["b", 3], ["c", 3]]
    assert page.evaluate(count, [PASSED_OVER, BACK_LOSSES, [BACK]]) == [["a", 1], ["c", 3]]
    gone = [visit("b", 0, 9, 8) | {"index": 2, "closed_at": 250.0}]
    stood = [
        visit(name, at, 3, 2) | {"index": 1, "closed_at": 9.0} for at, name in ((1, "a"), (3, "b"), (5, "a"), (7, "b"))
    ]
    assert len(run("losses", "recency", [*gone, *stood[:3]])["rows"]) == 2
    assert len(run("losses", "recency", [*gone, *stood[:3]], [BACK])["rows"]) == 1


PUT_BACK = """async ([visits, facts]) => {
  const { heldOut, curves } = await import("/ui/losses.js");
  const closes = new Map(facts.flatMap((one, n) => (one.visit ? [[one.visit, n]] : [])));
  const told = facts.flatMap((one, n) => (one.visit ? [] : [{ ...one, place: n }]));
  const losses = visits.map((one) => ({ visit: one.id, holder: "a", step: one.index, loss: 1 }));
  return [heldOut(visits, told, closes), curves(visits, losses, told, closes).get("a").map(([step]) => step)];
}"""


def test_what_was_made_again_behind_a_clock_that_was_put_back_stands_on_the_page_too(page: Any) -> None:
    visits, facts = put_back()
    measured, steps = page.evaluate(PUT_BACK, [visits, facts])
    assert ([tuple(point) for point in measured], steps) == (held_out(visits, *facts), [1, 2, 3, 4])


LOOKED_AT = """async cases => {
  const { heldOut } = await import("/ui/losses.js");
  let times = 0;
  const counted = (visit) => new Proxy(visit, { get: (one, name) => { times += 1; return one[name]; } });
  return cases.map(([visits, ends]) => { times = 0; return [heldOut(visits.map(counted), ends).length, times]; });
}"""


def test_each_tour_of_very_many_looks_at_its_own_visits(page: Any) -> None:
    """All of it is drawn again with each change, up to four times a second."""
    (few, looked), (many, more) = page.evaluate(LOOKED_AT, [many_tours(100), many_tours(200)])
    assert (few, many) == (100, 200)
    assert more <= 2.5 * looked, "twice the session takes twice as long, not four times"


def test_a_loss_that_is_released_as_nothing_is_no_base_of_a_share(run: Any) -> None:
    visits = [
        visit("a", 0, 1, 0),
        visit("b", 2, 1, 0),
        visit("c", 4, 1, 1),
        visit("a", 6, 1.7, 1),
        visit("b", 8, 1.7, 1),
        visit("c", 10, 1, 1),
    ]
    found = run("losses", "recency", visits)
    assert (found["state"], [one["holder"] for one in found["rows"]]) == ("unknown", ["c"])


def test_a_thinned_curve_keeps_its_spikes(run: Any) -> None:
    points = [[n, 9.0 if n == 4321 else 1.0 + n % 2] for n in range(10_000)]
    thinned = run("losses", "thinned", points, 400)
    assert len(thinned) <= 402
    assert [4321, 9.0] in thinned
    assert [point[0] for point in thinned] == sorted(point[0] for point in thinned)


def test_events_that_come_in_pieces(tab: NewTab) -> None:
    page = tab().open()
    text = 'retry: 1\n\n: alive\n\nid: 1\nevent: loss\ndata: {"a":1}\n\ndata: two\ndata: lines\n\nid: 3\ndata: cut off'
    code = """async pieces => {
      const parser = new (await import("/ui/common/sse.js")).EventParser();
      return pieces.flatMap(one => parser.push(one));
    }"""
    for size in (1, 2, 7, 1000):
        found = page.evaluate(code, [text[at : at + size] for at in range(0, len(text), size)])
        assert found == [
            {"id": "1", "event": "loss", "data": '{"a":1}'},
            {"id": "1", "event": "message", "data": "two\nlines"},
        ]


def test_differences_of_documents(run: Any) -> None:
    before = {"rounds": 2, "roster": [{"holder": "a", "key": 1}, {"holder": "b", "key": 2}], "gone": []}
    after = {"rounds": 3, "roster": [{"holder": "b", "key": 2}], "new": None}
    kinds = {one["path"]: one["kind"] for one in run("diff", "differences", before, after)}
    assert kinds == {
        "rounds": "changed", "roster.a.holder": "removed", "roster.a.key": "removed", "roster.b.holder": "same", "roster.b.key": "same",
        "gone": "removed", "new": "added",
    }  # fmt: skip


def test_durations(run: Any) -> None:
    said = {
        0: "0 s", 2e-5: "20 µs", 0.0034: "3.4 ms", 0.25: "250 ms", 5: "5.0 s", 59.7: "1 min 0 s", 0.9996: "1.0 s",
        0.0009999: "1.0 ms", 125: "2 min 5 s", 7500: "2 h 5 min",
        1e6: "11 d 13 h",
    }  # fmt: skip
    assert {seconds: run("common/format", "duration", seconds) for seconds in said} == said


def test_numbers_and_sizes_at_their_edges(run: Any) -> None:
    assert [run("common/format", "number", *given) for given in ((0.00003,), (0.12345,), (0,), (0.04, 1), (-0.00003,))] == [
        "0.00003", "0.1235", "0", "0.04", "-0.00003",
    ]  # fmt: skip
    assert [run("common/format", "bytes", count) for count in (1023, 1024, 1048575, 1048576)] == [
        "1023 B",
        "1.0 KiB",
        "1.0 MiB",
        "1.0 MiB",
    ]
    assert run("common/format", "moment", 1_800_000_000.5) == "2027-01-15 08:00:00 UTC"
    assert run("common/format", "moment", 2**53) == str(2**53), (
        "no date is that far away, and no verdict is lost for it"
    )


def test_points_of_a_time_axis_say_no_more_than_tells_them_apart(run: Any) -> None:
    said = {(10, 0): "10 s", (2.5, 0): "2.5 s", (10, 5): "10 s", (10, 0.5): "10.0 s", (0.25, 0.05): "0.25 s"}
    assert {point: run("common/format", "axisTime", *point) for point in said} == said


# ------------------------------------------------------------- reader tokens


def test_who_reads_losses_and_nobody_the_model(stage: UiStage) -> None:
    session = f"/v1/sessions/{stage.sessions['done']}"

    def read(token: str, path: str, method: str = "GET") -> httpx2.Response:
        return httpx2.request(method, stage.orchestrator.url + path, headers={"authorization": f"Bearer {token}"})

    assert len(read(OWNER_READER, f"{session}/losses").json()["items"]) == 18
    assert read(READER, f"{session}/losses").json()["items"] == []
    assert json.loads(read(OWNER_READER, "/v1/whoami").text) == {"name": "owner", "role": "auditor, owner", "key": ""}
    for token in (READER, OWNER_READER):
        answer = read(token, f"{session}/model")
        assert (answer.status_code, answer.json()["code"]) == (403, "output-policy")
        answer = read(token, f"{session}/cancel", "POST")
        assert (answer.status_code, answer.json()["code"]) == (403, "token-reads-only")
