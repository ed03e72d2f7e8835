"""The pages' pure parts, run in the browser that will run them: layout, losses, streams, differences, formats; and reader tokens."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import httpx2
import pytest

from tests.ui.conftest import NewTab
from tests.ui.stage import OWNER_READER, READER, UiStage


@pytest.fixture
def run(tab: NewTab) -> Any:
    """Calls an exported function of a module in a page."""
    page = tab().open()
    page.get_by_role("heading", name="Queue").wait_for()
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


TOUR = """async ([visits, at, now, facts]) => {
  const view = { holders: [{ holder: "city" }, { holder: "north" }], created_at: 0 };
  const { spans } = (await import("/ui/tour.js")).tourOf({ view, visits, facts: facts ?? [], at: new Map(Object.entries(at)), now });
  return spans.map(one => [one.visit, one.kind, one.lane, one.start, one.end]);
}"""
# As in mode `scoped`: the second visit is planned, and its key drawn, while the first one is away; it waits through that one's training.
STEPS = {"provision": 0.25, "fence": 0.25, "train": 4.0, "epilogue": 0.25, "close": 0.25}
FIRST = {"planned": 0.0, "granted": 0.5, "offered": 0.5, "reported": 1.0, "fenced": 1.0, "verified": 1.0}
SECOND = {"planned": 0.75, "granted": 1.0, "offered": 1.0}
CLOSED = {"trained": 5.0, "scrubbed": 5.5, "closed": 5.5}


def of_tour(name: str, holder: str, planned: float, closed: float | None = None, **more: Any) -> dict[str, Any]:
    durations = STEPS if closed is not None else {}
    return {
        "id": name, "holder": holder, "planned_at": 1000 + planned, "closed_at": closed and 1000 + closed, "durations": durations,
        "outcome": "closed" if closed else None, **more,
    }  # fmt: skip


def told(facts: dict[str, float]) -> dict[str, float]:
    return {fact: 1000 + at for fact, at in facts.items()}


def test_a_visit_that_sealed_ahead_is_drawn_where_it_had_the_gpu(tab: NewTab) -> None:
    visits = [of_tour("a", "city", 0.0, 5.5), of_tour("b", "north", 0.75, 10.5)]
    at = {"a": told(FIRST | CLOSED), "b": told(SECOND | {"reported": 5.75})}
    spans = tab().open().evaluate(TOUR, [visits, at, 1020])
    assert [(of, kind, start - 1000, end - 1000) for of, kind, _, start, end in spans] == [
        ("a", "provision", 0.5, 0.75), ("a", "verify", 0.75, 1.0), ("a", "train", 1.0, 5.0), ("a", "scrub", 5.0, 5.5),
        ("b", "provision", 5.5, 5.75), ("b", "verify", 5.75, 6.0), ("b", "train", 6.0, 10.0), ("b", "scrub", 10.0, 10.5),
    ]  # fmt: skip


def test_a_visit_under_way_has_the_gpu_once_the_one_before_is_closed(tab: NewTab) -> None:
    page = tab().open()
    visits = [of_tour("a", "city", 0.0), of_tour("b", "north", 0.75)]
    training = page.evaluate(TOUR, [visits, {"a": told(FIRST), "b": told(SECOND)}, 1003])
    assert [one for one in training if one[0] == "b"] == []
    assert training[-1] == ["a", "train", "orchestrator", 1001, 1003]
    its_turn = page.evaluate(TOUR, [visits, {"a": told(FIRST | CLOSED), "b": told(SECOND)}, 1006])
    assert [one for one in its_turn if one[0] == "b"] == [["b", "provision", "north", 1005.5, 1006]]


def test_a_visit_that_loads_ahead_has_the_gpu_while_it_trains(tab: NewTab) -> None:
    """As in mode `direct`: its key is drawn after the fence of the visit before, and it writes at once."""
    visits = [of_tour("a", "city", 0.0), of_tour("b", "north", 1.0)]
    at = {"a": told(FIRST), "b": told({"planned": 1.0, "granted": 1.5, "offered": 1.5})}
    spans = tab().open().evaluate(TOUR, [visits, at, 1003])
    assert ["b", "provision", "north", 1001.5, 1003] in spans


def test_a_visit_that_waits_for_its_tours_training_is_drawn_from_its_beginning(tab: NewTab) -> None:
    waits = of_tour("a", "city", 0.0, 8.0, durations={"provision": 0.5, "fence": 0.5})
    spans = tab().open().evaluate(TOUR, [[waits], {"a": told(FIRST)}, 1020])
    assert [(kind, start - 1000, end - 1000) for _, kind, _, start, end in spans] == [
        ("provision", 0.0, 0.5), ("verify", 0.5, 1.0), ("waiting", 1.0, 8.0),
    ]  # fmt: skip


TOGETHER = {"provision": 0.5, "fence": 0.5}
GATHERED = {"a": told(FIRST), "b": told({name: at + 1.0 for name, at in FIRST.items()})}


def test_a_collected_tours_training_is_drawn_where_it_ended_and_its_visits_do_not_wait(tab: NewTab) -> None:
    visits = [
        of_tour("a", "city", 0.0, 6.75, durations=TOGETHER),
        of_tour("b", "north", 1.0, 6.75, durations=TOGETHER),
    ]
    took = {"train": 4.0, "validate": 0.25, "epilogue": 0.25}
    end = {"kind": "training", "fact": "scrubbed", "visits": ["a", "b"], "at": 1006.75, "tour_durations": took}
    spans = tab().open().evaluate(TOUR, [visits, GATHERED, 1020, [end]])
    assert [(of, kind, start - 1000, end - 1000) for of, kind, _, start, end in spans] == [
        ("a", "provision", 0.0, 0.5), ("a", "verify", 0.5, 1.0), ("b", "provision", 1.0, 1.5), ("b", "verify", 1.5, 2.0),
        (None, "train", 2.25, 6.25), (None, "validate", 6.25, 6.5), (None, "scrub", 6.5, 6.75),
    ]  # fmt: skip


def test_a_rejected_tour_is_drawn_once(tab: NewTab) -> None:
    visits = [of_tour(name, holder, at, 4.5, durations=TOGETHER, outcome="rejected")
              for name, holder, at in (("a", "city", 0.0), ("b", "north", 1.0))]  # fmt: skip
    took = {"train": 2.0, "epilogue": 0.25}
    ends = [
        {"kind": "training", "fact": "rejected", "visit": one, "at": 1004.5, "tour_durations": took} for one in "ab"
    ]
    spans = tab().open().evaluate(TOUR, [visits, GATHERED, 1020, ends])
    assert [(kind, start - 1000, end - 1000) for of, kind, _, start, end in spans if of is None] == [
        ("train", 2.25, 4.25), ("broken", 4.25, 4.5),
    ]  # fmt: skip
    assert [(of, kind) for of, kind, *_ in spans if of and kind != "provision"] == [("a", "broken"), ("b", "broken")]


def test_a_tour_that_accumulates_shows_its_step(tab: NewTab) -> None:
    end = {"kind": "session", "fact": "tour_ended", "at": 1006.0, "durations": {"train": 0.25, "epilogue": 0.25}}
    spans = tab().open().evaluate(TOUR, [[of_tour("a", "city", 0.0, 5.5)], {}, 1020, [end]])
    assert [(kind, start - 1000) for of, kind, _, start, _ in spans if of is None] == [("train", 5.5), ("scrub", 5.75)]


def test_a_tour_that_trains_now_is_drawn_once_all_have_brought_their_records(tab: NewTab) -> None:
    page = tab().open()
    first, second = (of_tour(name, holder, at, durations=TOGETHER)
                     for name, holder, at in (("a", "city", 0.0), ("b", "north", 1.0)))  # fmt: skip
    alone = page.evaluate(TOUR, [[first], GATHERED, 1003])
    both = page.evaluate(TOUR, [[first, second], GATHERED, 1003])
    assert [one for one in alone if one[1] == "train"] == []
    assert [one for one in both if one[1] == "train"] == [[None, "train", "orchestrator", 1002, 1003]]


def test_trainings_of_one_gpu_do_not_overlap(tab: NewTab, stage: UiStage) -> None:
    page = tab().open()
    path = f"/v1/sessions/{stage.sessions['done']}/visits"
    visits = httpx2.get(stage.orchestrator.url + path, headers={"authorization": f"Bearer {READER}"}).json()["items"]
    spans = page.evaluate(TOUR, [visits, {}, visits[-1]["closed_at"] + 1])
    trained = [(start, end) for _, kind, _, start, end in spans if kind == "train"]
    assert len(trained) == 6
    assert all(before[1] <= after[0] for before, after in pairwise(trained))


def visit(holder: str, step: int, *losses: float) -> dict[str, Any]:
    return {"holder": holder, "outcome": "closed", "first_step": step, "losses": list(losses)}


def test_recency_bias_is_the_loss_that_comes_back(run: Any) -> None:
    first, second = [visit("a", 0, 3, 2), visit("b", 2, 3, 2)], [visit("a", 4, 2.6, 2), visit("b", 6, 2.4, 2)]
    assert run("losses", "recency", first)["state"] == "unknown"
    found = run("losses", "recency", [*first, *second])
    assert (found["state"], round(found["share"], 6)) == ("biased", 0.25)
    assert run("losses", "recency", [*first, visit("a", 4, 2.1), visit("b", 6, 2.1)])["state"] == "none"


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
        0: "0 s", 2e-5: "20 µs", 0.0034: "3.4 ms", 0.25: "250 ms", 5: "5.0 s", 59.7: "60 s", 125: "2 min 5 s", 7500: "2 h 5 min",
        1e6: "11 d 13 h",
    }  # fmt: skip
    assert {seconds: run("common/format", "duration", seconds) for seconds in said} == said


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
