"""What a session's page says of each state it may be in, and that its readers lose neither their place nor what they read."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.ui.browser import Tab
from tests.ui.conftest import NewTab
from tests.ui.stage import UiStage
from tests.ui.test_dashboard import TABS


def changed_view(one: Tab, session: str, change: Callable[[Any], None]) -> None:
    """From now on the session's page is as it is, but for what `change` does to it."""

    def answer(route: Any) -> None:
        got = route.fetch()
        view = got.json()
        change(view)
        route.fulfill(response=got, json=view)

    one.page.route(re.compile(f"/v1/sessions/{session}$"), answer)


def test_emulated_is_said_on_every_tab_where_the_manifest_admits_it(tab: NewTab, stage: UiStage) -> None:
    page = tab().open()
    page.get_by_role("heading", name="Queue").wait_for()
    for name in TABS:  # nothing was attested yet: no result and no backend says it
        page.evaluate(f"location.hash = '#/sessions/{stage.sessions['waiting']}/{name}'")
        page.locator(f"nav [aria-current=page][href$='/{name}']").wait_for()
        page.locator(".emulated").wait_for(timeout=20_000)


def test_an_answer_that_comes_late_is_no_other_sessions_differences(tab: NewTab, stage: UiStage) -> None:
    late = stage.submit_waiting("asked first, answered last")
    one, held = tab(), list[Any]()
    one.page.route(
        f"**/v1/sessions/{late}/manifest", lambda route: held.append(route)
    )  # a builtin takes no mark of Playwright's
    page = one.open(f"#/sessions/{stage.sessions['done']}/contract")
    page.locator(f'#other option[value="{late}"]').wait_for(state="attached")
    select = page.get_by_label("Compare with the manifest of")
    select.select_option(late)
    select.select_option(stage.sessions["waiting"])
    page.get_by_role("table", name=re.compile(f"differ from .*{stage.sessions['waiting']}")).wait_for()
    with page.expect_response(re.compile(f"{late}/manifest")):
        held[0].continue_()
    page.wait_for_timeout(300)
    assert page.get_by_role("table", name=re.compile("differ from")).count() == 1
    assert "asked first" not in page.locator(".diff").inner_text()


def test_what_became_of_holders_and_why_it_ended_early(tab: NewTab, stage: UiStage) -> None:
    def change(view: Any) -> None:
        view["holders"][0] |= {"quarantined": True, "rejected": 3}
        view["stopped_early"] = "the held-out loss was least at the start"

    one = tab()
    changed_view(one, stage.sessions["done"], change)
    page = one.open(f"#/sessions/{stage.sessions['done']}/training")
    page.get_by_text("It ends early, before all its visits: the held-out loss was least at the start.").wait_for()
    assert page.get_by_text("quarantined city is visited no more.").count() == 1
    page.locator("summary", has_text="As tables").click()
    row = page.get_by_role("table", name="Records and privacy").get_by_role("row", name="city")
    cells = row.inner_text().split("\t")
    assert [*cells[5:8], cells[8].endswith(" ago")] == ["3", "no more: quarantined", "none", True]


def test_who_goes_on_by_keyboard_stays_in_the_page(tab: NewTab, stage: UiStage) -> None:
    page = tab().open(f"#/sessions/{stage.sessions['done']}/tour")
    page.locator("g.visit").first.wait_for()
    page.get_by_role("link", name="Trust").focus()
    page.keyboard.press("Enter")
    page.get_by_text("The machine of").first.wait_for()
    assert page.evaluate("document.activeElement.textContent") == "Trust"
    assert page.locator("#announcements").inner_text() == page.title() == "study: Trust · GPU Travelling"
    page.evaluate("location.hash = '#/'")
    page.get_by_role("heading", name="Queue").wait_for()
    assert page.evaluate("document.activeElement.id") == "content"
    page.get_by_role("button", name="Forget the token").click()
    page.get_by_label("Bearer token").wait_for()
    assert page.title() == "GPU Travelling"


def test_a_digest_is_copied_whole(tab: NewTab, stage: UiStage) -> None:
    page = tab().open(f"#/sessions/{stage.sessions['done']}/trust")
    page.get_by_text("The machine of").first.wait_for()
    code = page.locator("section.result .facts code.digest").first
    whole = code.get_attribute("title")
    code.evaluate("one => getSelection().selectAllChildren(one)")
    page.keyboard.press("Control+c")
    assert page.evaluate("navigator.clipboard.readText()") == whole
    assert len(str(whole)) == 64
    assert code.bounding_box()["width"] < 200


@pytest.mark.parametrize("name", ["nonsense", "__proto__"])
def test_a_tab_that_does_not_exist_is_the_first_one(tab: NewTab, stage: UiStage, name: str) -> None:
    page = tab().open(f"#/sessions/{stage.sessions['done']}/{name}")
    page.locator("g.visit").first.wait_for()
    assert page.locator("nav [aria-current=page]").inner_text() == "Tour"


CHOSEN = """async () => {
  const { Timeline } = await import("/ui/timeline.js");
  const chart = new Timeline(new AbortController().signal);
  document.querySelector("main").append(chart.element);
  const visit = { id: "a", holder: "city", index: 1, round: 1, attempt: 1, phase: "AWAY", planned_at: 1000 };
  const view = { holders: [{ holder: "city" }], created_at: 1000, visits_closed: 0, visits_total: 1 };
  const at = new Map([["a", { planned: 1000, offered: 1001 }]]);
  const live = { view, visits: new Map([["a", visit]]), facts: [], losses: new Map(), at };
  const said = () => [chart.chosen.querySelector(".badge").textContent, chart.chosen.getAttribute("aria-live")];
  chart.update(live);
  chart.element.querySelector(".visit").focus();
  const before = said();
  live.visits.set("a", { ...visit, phase: "SCRUBBED", outcome: "closed", closed_at: 1010, durations: { train: 3 } });
  chart.update(live);
  return [before, said()];
}"""


def test_the_chosen_visit_goes_on_under_a_readers_eyes_and_is_not_read_out(tab: NewTab) -> None:
    page = tab().open()
    page.get_by_role("heading", name="Queue").wait_for()
    assert page.evaluate(CHOSEN) == [["AWAY", "polite"], ["closed", "off"]]


def test_a_log_without_a_leaf_is_no_fault(tab: NewTab, stage: UiStage) -> None:
    page = tab().open(f"#/sessions/{stage.sessions['waiting']}/receipts")
    page.get_by_text("There is nothing to verify yet.").wait_for()
    page.get_by_text("The log has no leaf yet").wait_for()
    assert page.get_by_role("button", name="Verify", exact=True).is_disabled()
    assert page.locator(".problem").count() == 0
    assert page.get_by_text("gput receipts verify").count() == 1


def test_a_verdict_says_what_came_since(tab: NewTab, stage: UiStage) -> None:
    session = stage.submit(name="grows on", rounds=1000)
    stage.approve(session)
    stage.call(stage.world.until(session, lambda view: view["visits_closed"]))
    stage.call(stage.world.owner.act(session, "pause"))
    stage.call(stage.world.until(session, lambda view: view["phase"] == "PAUSED"))
    page = tab().open(f"#/sessions/{session}/receipts")
    page.get_by_text("VERIFIED HERE").wait_for()
    verdict = page.locator("#verdict").inner_text()
    stage.call(stage.world.owner.act(session, "resume"))
    page.get_by_text(re.compile(r"^\d+ lea(f|ves) came since: this verdict is of the log before")).wait_for()
    assert page.locator("#verdict").inner_text() == verdict
    stage.call(stage.world.owner.act(session, "cancel"))
    page.locator(".heading .badge", has_text="CANCELLED").wait_for()
    page.get_by_role("button", name="Verify", exact=True).click()
    page.get_by_text("came since").wait_for(state="detached")
    page.locator("#verdict", has_text="VERIFIED HERE").wait_for()
    head = page.locator("section", has=page.get_by_role("heading", name="Log", exact=True)).locator("dd").first
    assert f"All hold: {head.inner_text()} leaves" in page.locator("#verdict").inner_text()


def test_a_long_log_is_verified_when_asked_and_says_so(tab: NewTab, stage: UiStage) -> None:
    one = tab()
    changed_view(one, stage.sessions["done"], lambda view: view["log"].update(size=2001))
    page = one.open(f"#/sessions/{stage.sessions['done']}/receipts")
    page.get_by_text("Not verified yet: 2001 leaves take a while.").wait_for()
    assert page.get_by_text("gput receipts verify").count() == 1
    page.get_by_role("button", name="Verify", exact=True).click()
    page.get_by_text("VERIFIED HERE").wait_for()


def test_a_token_with_signs_of_print_is_named_as_none(tab: NewTab) -> None:
    page = tab(token="").open()
    page.get_by_label("Bearer token").fill("\u201creader-of-pages-0123456789\u201d")
    page.keyboard.press("Enter")
    page.get_by_text("That is no token").wait_for()
    assert page.evaluate("sessionStorage.length") == 0


def test_a_long_name_leaves_the_other_columns_in_sight(tab: NewTab, stage: UiStage) -> None:
    session = stage.submit_waiting("n" * 80)
    page = tab().open()
    queue = page.locator("section", has=page.get_by_role("heading", name="Queue"))
    queue.get_by_role("row", name=session[:10]).wait_for()
    assert queue.locator(".scroller").evaluate("one => one.scrollWidth - one.clientWidth") <= 1
