"""The holder's page in a real browser: what its operator reads and decides there, and what an auditor may not."""

from __future__ import annotations

from typing import Any

import pytest

from tests.ui.browser import PHONE
from tests.ui.conftest import NewTab
from tests.ui.looks import collided, cut, faint, overflow, unnamed
from tests.ui.stage import HOLDER, HOSTILE, UiStage


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
        ("#/", "home", "29 checks"),
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
        one.open(place).get_by_text("29 checks").first.wait_for()
    assert len(bodies) > 6
    shown = one.page.content().encode()
    assert not [
        canary
        for canary in stage.world.canaries
        for text in (*bodies, shown)
        if canary in text or canary.hex().encode() in text
    ]


def test_what_asks_later_comes_to_a_page_that_stays_open(tab: NewTab, stage: UiStage) -> None:
    page = opened(tab, stage).page
    page.get_by_role("link", name=stage.sessions["done"]).first.wait_for()
    later = stage.submit_waiting("asked later")
    page.get_by_role("link", name=later).wait_for(timeout=20_000)
