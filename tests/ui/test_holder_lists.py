"""The holder's page where there is much of it: long lists, and the commands beside the form. What fails is shown however old it is."""

from __future__ import annotations

import json
import re
import shlex
from typing import Any

import pytest

from tests.ui.conftest import NewTab
from tests.ui.looks import overflow
from tests.ui.stage import UiStage

CHECKED = re.compile(r"^\d+ checks$")
"""What a receipt's row says of the checks that all hold."""


def many(page: Any, name: str, count: int, **changed: Any) -> None:
    """The list `name` has `count` items like its first one; those at the places in `changed["at"]` are otherwise."""
    at, more = changed.pop("at", {}), changed

    def answer(route: Any) -> None:
        reply = route.fetch()
        [first, *_] = reply.json()["items"]
        items = [{**first, **more, "index": n, "epoch": n, **at.get(n, {})} for n in range(count)]
        route.fulfill(response=reply, json={"items": items, "next": None})

    page.route(f"**/v1/{name}?*", answer)


def test_a_receipt_that_fails_is_shown_however_old_it_is(tab: NewTab, stage: UiStage) -> None:
    one = tab(stage.holder.url, stage.tokens["operator"])
    failing = [{"check": "own data", "ok": False, "detail": "length differs"}]
    many(one.page, "receipts", 150, at={3: {"verified": False, "checks": failing}})
    for place in ("#/", f"#/requests/{stage.sessions['done']}"):
        page = one.open(place)
        table = page.get_by_role("table", name="the last 100 of 150, and all that fail")
        table.wait_for()
        assert table.locator("tbody tr").count() == 101
        [old] = table.locator("tbody tr").filter(has_text="FAIL").all()
        assert old.locator("td").first.inner_text() == "3"
        assert table.locator("tbody tr").first.locator("td").first.inner_text() == "149"


def test_visits_name_their_session_and_the_newest_come_first_whatever_it_is_called(tab: NewTab, stage: UiStage) -> None:
    one = tab(stage.holder.url, stage.tokens["operator"])
    newest = {"session": "s_0000000000000000", "at": 2e9}  # a list goes by the session's name: its first item
    many(one.page, "visits", 120, session="s_zzzzzzzzzzzzzzzz", at={0: newest})
    table = one.open().get_by_role("table", name="Visits of the GPU to this holder; the last 100 of 120")
    rows = table.locator("tbody tr")
    rows.first.wait_for()
    assert (rows.count(), rows.first.locator("th").inner_text()) == (100, "s_0000000000000000")


REDRAWN = """async ([before, after, at]) => {
  const parts = ["common/panel", "common/dom", "home"].map(one => import(`/ui/${one}.js`));
  const [{ redrawn }, { show }, { receiptsTable }] = await Promise.all(parts);
  const place = document.getElementById("content");
  const row = () => [...place.querySelectorAll("tbody tr")].find(one => one.cells[1].textContent === String(at));
  redrawn(place, () => show(place, receiptsTable(before)));
  const kept = [];
  for (const kind of ["summary", "a"]) {
    row().querySelector("details").open = true;
    row().querySelector(kind).focus();
    redrawn(place, () => show(place, receiptsTable(after)));
    const unfolded = [...place.querySelectorAll("tr")].filter(one => one.querySelector("details[open]"));
    kept.push(unfolded.map(one => one.cells[1].textContent), document.activeElement === row().querySelector(kind));
    redrawn(place, () => show(place, receiptsTable(before)));
  }
  return kept;
}"""


def test_a_row_that_is_unfolded_or_read_stays_the_same_when_a_newer_one_comes(tab: NewTab, stage: UiStage) -> None:
    """The newest is first: unfolded by its place, it was another visit's checks that were read on."""
    page = tab(stage.holder.url, stage.tokens["auditor"]).open("#/nowhere")
    page.get_by_role("heading").first.wait_for()
    row = {
        "session": "s_0000000000000000", "visit": "v_0000000000000000", "outcome": "closed", "backend": "EMULATED", "verified": True,
        "checks": [{"check": "log", "ok": True, "detail": ""}],
    }  # fmt: skip
    rows = [{**row, "index": at, "closed_at": at} for at in range(4)]
    assert page.evaluate(REDRAWN, [rows[:3], rows, 1]) == [["1"], True, ["1"], True]


def test_the_same_as_commands_is_what_the_button_sends(troubled: Any, stage: UiStage) -> None:
    session = stage.submit_waiting("commands")
    page, sent = troubled.page, list[Any]()

    def datasets(route: Any) -> None:
        reply = route.fetch()
        [one] = reply.json()["items"]
        route.fulfill(response=reply, json={"items": [one, {**one, "name": "other"}], "next": None})

    def decide(route: Any) -> None:
        sent.append(route.request.post_data_json)
        route.fulfill(status=503, json={"code": "unavailable", "detail": "Not now."})

    page.route("**/v1/datasets?*", datasets)
    page.route(re.compile(f"/v1/requests/{session}/(approve|refuse)$"), decide)
    troubled.open(f"#/requests/{session}")
    page.get_by_label("Dataset").select_option("other")
    page.get_by_role("checkbox", name="Say how large values are").uncheck()
    page.get_by_label("Reason").fill("it's ours")
    page.locator("summary", has_text="The same as commands").click()
    page.get_by_role("checkbox", name="I decide on manifest").check()
    for verb in ("approve", "refuse"):
        page.get_by_role("button", name=verb.title()).click()
        page.get_by_text("Not now.").wait_for()
        said, curled = (shlex.split(text) for text in page.locator(".decide pre", has_text=verb).all_inner_texts())
        body = sent.pop()
        assert json.loads(curled[curled.index("-d") + 1]) == body
        of_approval = ["--dataset", "other", "--no-statistics"] if verb == "approve" else []
        more = {"dataset": "other", "statistics": False} if verb == "approve" else {}
        assert body == {"manifest": body["manifest"], "reason": "it's ours", **more}
        assert said == [
            "gput",
            "party",
            verb,
            session,
            "--manifest",
            body["manifest"],
            *of_approval,
            "--reason",
            "it's ours",
        ]
    assert overflow(page) <= 0  # a line that is long is scrolled in its place
    troubled.shot("holder-commands")


@pytest.mark.parametrize("path", ["requests", "visits", "receipts"])
def test_a_row_that_is_damaged_is_marked_in_its_list(tab: NewTab, stage: UiStage, path: str) -> None:
    one = tab(stage.holder.url, stage.tokens["operator"])
    many(one.page, path, 1, fault="damaged in the database: state")
    one.open("#/").get_by_text("damaged: damaged in the database: state").wait_for()
