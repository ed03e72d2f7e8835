"""The holder's page in a real browser: what its operator reads and decides there, and what an auditor may not."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.ui.browser import PHONE
from tests.ui.conftest import NewTab
from tests.ui.looks import collided, cut, faint, overflow, unnamed
from tests.ui.stage import HOLDER, HOSTILE, UiStage

CHECKED = re.compile(r"^\d+ checks$")
"""What a receipt's row says of the checks that all hold."""


def opened(tab: NewTab, stage: UiStage, place: str = "#/", role: str = "operator", **options: Any) -> Any:
    """A tab of the holder's page."""
    one = tab(stage.holder.url, stage.tokens[role], **options)
    one.open(place)
    return one


@pytest.mark.parametrize("kind", ["light", "dark", "phone"])
def test_it_loads_and_can_be_read(tab: NewTab, stage: UiStage, kind: str) -> None:
    options: Any = {"light": {}, "dark": {"color_scheme": "dark"}, "phone": {"viewport": PHONE}}[kind]
    one = opened(tab, stage, **options)
    for place, name, shown in [
        ("#/", "home", CHECKED),
        (f"#/requests/{stage.sessions['done']}", "request", "aten.linear.default"),
    ]:
        page = one.open(place)
        page.get_by_text(shown).first.wait_for()
        assert page.locator(".emulated").inner_text().startswith("EMULATED")
        one.shot(f"holder-{name}-{kind}")
        assert faint(page) == []
        assert unnamed(page) == []
        assert collided(page) == []
        assert cut(page) == []
        assert overflow(page) <= 0


def test_the_operator_approves_and_then_vetoes(tab: NewTab, stage: UiStage) -> None:
    session = stage.submit_waiting(HOSTILE)
    page = opened(tab, stage, f"#/requests/{session}").page
    page.get_by_role("heading", name=HOSTILE).wait_for()
    page.get_by_text("visits, steps, records and bytes are the manifest's, as this holder read it").wait_for()
    page.get_by_role("checkbox", name="Say how large values are").uncheck()
    approve = page.get_by_role("button", name="Approve")
    approve.click()
    page.get_by_text("Tick the box first").wait_for()
    page.get_by_role("checkbox", name="I decide on manifest").check()
    approve.click()
    page.locator("h1 .badge", has_text="approved").wait_for()
    page.get_by_text("What the approval says of the dataset's fields").wait_for()
    page.get_by_role("checkbox", name="I decide on manifest").check()
    page.get_by_label("Reason").fill(HOSTILE)
    page.get_by_role("button", name="Veto").click()
    page.locator("h1 .badge", has_text="vetoed").wait_for()
    assert page.get_by_text(HOSTILE).count() >= 2
    assert page.evaluate("window.hostile") is None
    said = stage.call(stage.world.operator(HOLDER).get(f"requests/{session}"))
    assert (said["state"], said["reason"], said["decided_by"]) == ("vetoed", HOSTILE, "operator")


def test_the_operator_refuses_with_a_reason_and_that_stands(tab: NewTab, stage: UiStage) -> None:
    session = stage.submit_waiting("refused")
    page = opened(tab, stage, f"#/requests/{session}").page
    page.get_by_role("checkbox", name="I decide on manifest").check()
    page.get_by_label("Reason").fill("not with these terms")
    page.get_by_role("button", name="Refuse").click()
    page.get_by_text("A refusal stands").wait_for()
    assert page.get_by_role("button", name="Approve").count() == 0
    said = stage.call(stage.world.operator(HOLDER).get(f"requests/{session}"))
    assert (said["state"], said["reason"]) == ("refused", "not with these terms")


def test_an_auditor_may_only_read(tab: NewTab, stage: UiStage) -> None:
    session = stage.submit_waiting("read only")
    one = opened(tab, stage, f"#/requests/{session}", role="auditor")
    one.page.get_by_role("checkbox", name="I decide on manifest").check()
    one.page.get_by_role("button", name="Refuse").click()
    one.page.get_by_text("role-missing").wait_for()
    assert one.complaints.pop().startswith("error: Failed to load resource")  # the browser's own word on a 403
    assert stage.call(stage.world.operator(HOLDER).get(f"requests/{session}"))["state"] == "waiting"


def test_no_page_shows_a_record(tab: NewTab, stage: UiStage) -> None:
    one, bodies = tab(stage.holder.url, stage.tokens["operator"]), list[bytes]()
    one.page.on("response", lambda answer: bodies.append(answer.body()) if "/v1/" in answer.url else None)
    for place in ("#/", f"#/requests/{stage.sessions['done']}"):
        one.open(place).get_by_text(CHECKED).first.wait_for()
    assert len(bodies) > 6
    shown = one.page.content().encode()
    assert not [
        canary
        for canary in stage.world.canaries
        for text in (*bodies, shown)
        if canary in text or canary.hex().encode() in text
    ]


def test_what_asks_later_comes_to_a_page_that_stays_open(tab: NewTab, stage: UiStage) -> None:
    page = opened(tab, stage, hurried=True).page
    page.get_by_role("link", name=stage.sessions["done"]).first.wait_for()
    later = stage.submit_waiting("asked later")
    page.get_by_role("link", name=later).wait_for(timeout=20_000)
    row = page.get_by_role("row", name=f"asked later {later}")
    said = stage.call(stage.world.operator(HOLDER).request(later))
    row.get_by_text(said["program"]["name"], exact=True).wait_for()  # by then the program is fetched as well
    assert row.get_by_text(said["owner"]).count() == 1


# ------------------------------------------------ pages that stay open


def test_what_was_trained_comes_to_pages_that_stay_open(tab: NewTab, stage: UiStage) -> None:
    session = stage.submit(name="followed to its end")
    stage.call(stage.world.operator(HOLDER).request(session))
    home, request = (opened(tab, stage, place, hurried=True).page for place in ("#/", f"#/requests/{session}"))
    request.get_by_text("No receipt yet").wait_for()
    home.get_by_role("link", name=session).first.wait_for()
    stage.approve(session)
    stage.completed(session)
    for name in ("Visits of the GPU", "Receipts of this holder's visits"):
        home.get_by_role("table", name=name).get_by_role("row").filter(has_text=session).first.wait_for()
    request.locator("h1 .badge", has_text="ended").wait_for()
    request.get_by_role("table", name="Receipts of this holder's visits").get_by_text(CHECKED).nth(1).wait_for()
    request.get_by_text("VERIFIED HERE").wait_for()
    request.get_by_role("button", name="Verify again").click()
    request.get_by_text("All hold: 2 leaves, 2 receipts among them").wait_for()
    request.get_by_text("came since").wait_for(state="detached")


def test_long_lists_are_read_again_only_where_something_was_written(tab: NewTab, stage: UiStage) -> None:
    one = tab(stage.holder.url, stage.tokens["auditor"])
    one.page.clock.install()
    asked: list[str] = []
    one.page.on("request", lambda call: asked.append(call.url.partition("/v1/")[2].partition("?")[0]))
    page = one.open()
    page.get_by_text(CHECKED).first.wait_for()
    for _ in range(4):
        with page.expect_response("**/v1/requests?*"):
            page.clock.run_for(5000)
    assert {name: asked.count(name) for name in ("visits", "receipts")} == {"visits": 1, "receipts": 1}
    stage.submit_waiting("something written")
    with page.expect_response("**/v1/visits?*"), page.expect_response("**/v1/receipts?*"):
        page.clock.run_for(5000)


def test_the_badge_says_whether_the_holder_is_connected_now(troubled: Any, stage: UiStage) -> None:
    answer: dict[str, Any] = {}
    troubled.page.route("**/v1/identity", lambda route: route.fulfill(**answer) if answer else route.fallback())
    for place in ("#/", f"#/requests/{stage.sessions['done']}"):
        answer.clear()
        page = troubled.open(place)
        top = page.locator("#top")
        top.get_by_text("connected", exact=True).wait_for()
        said = page.evaluate(
            """async token => (await fetch("/v1/identity", { headers: { authorization: `Bearer ${token}` } })).json()""",
            stage.tokens["operator"],
        )
        answer |= {"json": {**said, "connected": False}}
        top.get_by_text("not connected").wait_for()
        answer |= {"status": 503, "json": {"code": "unavailable", "detail": "Away."}}
        top.get_by_text("connection not known").wait_for()
        answer.clear()
        top.get_by_text("connected", exact=True).wait_for()
        page.locator("main .problem").first.wait_for(state="detached")


def test_a_form_that_is_filled_in_stays_while_the_request_changes(tab: NewTab, stage: UiStage) -> None:
    session = stage.submit_waiting("read for long")
    one, more = tab(stage.holder.url, stage.tokens["operator"], hurried=True), dict[str, Any]()

    def answer(route: Any) -> None:
        reply = route.fetch()
        route.fulfill(response=reply, json={**reply.json(), **more})

    one.page.route(f"**/v1/requests/{session}", answer)
    page = one.open(f"#/requests/{session}")
    page.get_by_label("Reason").fill("half a sentence")
    page.get_by_role("checkbox", name="I decide on manifest").check()
    page.get_by_role("checkbox", name="Say how large values are").uncheck()
    more["waiting_for"] = "somebody else"
    page.get_by_text("somebody else").wait_for()
    assert page.get_by_label("Reason").input_value() == "half a sentence"
    assert page.get_by_role("checkbox", name="I decide on manifest").is_checked()
    assert not page.get_by_role("checkbox", name="Say how large values are").is_checked()
    more["program"] = None  # another thing to decide about: nobody has read it yet
    page.get_by_text("The program was not fetched yet").wait_for()
    assert not page.get_by_role("checkbox", name="I decide on manifest").is_checked()


def test_a_dataset_that_was_taken_out_of_the_settings_is_no_choice(tab: NewTab, stage: UiStage) -> None:
    session = stage.submit_waiting("what is offered")
    one = tab(stage.holder.url, stage.tokens["operator"])
    with_datasets(one, {"name": "taken-out", "source": "withdrawn"})
    offered = one.open(f"#/requests/{session}").locator("#dataset option")
    offered.first.wait_for(state="attached")
    names = offered.all_inner_texts()
    assert len(names) > 1
    assert "taken-out" not in names


def with_datasets(one: Any, *more: dict[str, Any], instead: bool = False) -> list[dict[str, Any]]:
    """Datasets that the page is told of beside the true ones, or `instead` of them: like the first of those but in what is given. The list
    may be changed."""
    told_of = list(more)

    def answer(route: Any) -> None:
        reply = route.fetch()
        told = reply.json()
        true = [] if instead else told["items"]
        route.fulfill(
            response=reply, json={**told, "items": [*({**told["items"][0], **each} for each in told_of), *true]}
        )

    one.page.route("**/v1/datasets*", answer)
    return told_of


NOBODYS = "as the policy or the settings say"


def test_a_dataset_that_no_request_can_name_is_left_to_the_policy_and_the_settings(tab: NewTab, stage: UiStage) -> None:
    """Every approval by the page named it, and was refused."""
    session = stage.submit_waiting("named by nobody")
    one = tab(stage.holder.url, stage.tokens["operator"])
    with_datasets(one, {"name": "EHR", "source": "settings"}, {"name": "broken", "fault": "damaged"}, instead=True)
    page = one.open(f"#/requests/{session}")
    offered = page.locator("#dataset option")
    offered.first.wait_for(state="attached")
    assert offered.all_inner_texts() == [NOBODYS]
    page.get_by_role("checkbox", name="I decide on manifest").check()
    with page.expect_request(f"**/v1/requests/{session}/approve") as sent:
        page.get_by_role("button", name="Approve").click()
    assert "dataset" not in sent.value.post_data_json


def test_a_dataset_that_is_withdrawn_while_the_form_is_open_is_no_choice_any_more(tab: NewTab, stage: UiStage) -> None:
    session = stage.submit_waiting("open over a restart")
    one = tab(stage.holder.url, stage.tokens["operator"], hurried=True)
    told = with_datasets(one, {"name": "soon-gone", "source": "settings"})
    offered = one.open(f"#/requests/{session}").locator("#dataset option")
    one.page.locator("#dataset option", has_text="soon-gone").wait_for(state="attached")
    assert offered.all_inner_texts()[-1] == NOBODYS
    told[0]["source"] = "withdrawn"
    one.page.locator("#dataset option", has_text="soon-gone").wait_for(state="detached")
    assert len(offered.all_inner_texts()) > 1


def test_a_dataset_whose_row_is_damaged_says_so(tab: NewTab, stage: UiStage) -> None:
    one = tab(stage.holder.url, stage.tokens["operator"])
    with_datasets(one, {"name": "broken", "fault": "its options are damaged"})
    one.open("#/").get_by_text("broken damaged: its options are damaged").wait_for()


STATES_SEEN = """() => {
  window.seen = [];
  new MutationObserver(() => { window.seen.push(document.querySelector("h1 .badge")?.textContent); })
    .observe(document.getElementById("content"), { childList: true, subtree: true });
}"""


def test_an_answer_that_was_asked_for_before_a_decision_does_not_undo_it_on_the_page(
    tab: NewTab, stage: UiStage
) -> None:
    session = stage.submit_waiting("decided while it was read")
    one, held = tab(stage.holder.url, stage.tokens["operator"], hurried=True), list[tuple[Any, Any]]()
    page, path = one.open(f"#/requests/{session}"), f"**/v1/requests/{session}"
    page.get_by_role("checkbox", name="I decide on manifest").check()
    page.evaluate(STATES_SEEN)
    page.route(path, lambda route: held.append((route, route.fetch().json())))
    with page.expect_request(path):
        pass
    page.get_by_role("button", name="Refuse").click()
    page.locator("h1 .badge", has_text="refused").wait_for()
    [(route, said)] = held
    assert said["state"] == "waiting"
    route.fulfill(json=said)
    page.unroute(path)
    with page.expect_response(path):  # the next reading, after that one
        pass
    page.get_by_text("A refusal stands").wait_for()
    seen = page.evaluate("window.seen")
    assert set(seen[seen.index("refused") :]) == {"refused"}


# ------------------------------------------------ lists and commands
