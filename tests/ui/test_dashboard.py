"""The dashboard in a real browser: it loads, says what the API says, follows a session, and can be used by everybody."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.ui.browser import PHONE
from tests.ui.conftest import NewTab
from tests.ui.looks import broad, collided, cut, faint, overflow, unnamed
from tests.ui.stage import HOSTILE, OWNER_READER, READER, UiStage

TABS = {
    "tour": "Visit 1 at", "training": "recency bias", "trust": "The machine of", "contract": "digest holds", "receipts": "VERIFIED HERE",
    "artifacts": "gput session export",
}  # fmt: skip


KINDS: dict[str, Any] = {"light": {}, "dark": {"color_scheme": "dark"}, "phone": {"viewport": PHONE}}


def ready(page: Any, tab: str) -> None:
    """Once the tab shows what it is for."""
    if tab == "tour":
        page.locator("g.visit").first.wait_for()
    else:
        page.locator("main").get_by_text(TABS[tab]).first.wait_for()


@pytest.mark.parametrize("kind", KINDS)
def test_the_first_page_can_be_read(tab: NewTab, kind: str) -> None:
    one = tab(**KINDS[kind])
    page = one.open()
    page.get_by_role("table", name=re.compile("Every session")).get_by_text("visits").first.wait_for()
    page.get_by_text("attested by each session").or_(page.get_by_text("EMULATED")).first.wait_for()
    one.shot(f"dashboard-first-{kind}")
    assert (faint(page), unnamed(page), collided(page), cut(page)) == ([], [], [], [])
    assert overflow(page) <= 0


@pytest.mark.parametrize("name", TABS)
def test_every_tab_loads_and_can_be_read(tab: NewTab, stage: UiStage, name: str) -> None:
    for kind, options in KINDS.items():
        one = tab(**options)
        page = one.open(f"#/sessions/{stage.sessions['done']}/{name}")
        ready(page, name)
        assert page.locator(".emulated").inner_text().startswith("EMULATED")
        assert page.locator("nav [aria-current=page]").count() == 1
        one.shot(f"dashboard-{name}-{kind}")
        assert faint(page) == []
        assert unnamed(page) == []
        assert collided(page) == []
        assert cut(page) == []
        assert broad(page) == []
        assert overflow(page) <= 0
        one.close()


def test_the_first_page_shows_the_queue_with_reasons(tab: NewTab, stage: UiStage) -> None:
    page = (one := tab()).open()
    queue = page.locator("section", has=page.get_by_role("heading", name="Queue"))
    queue.get_by_text("absent (approval)").wait_for()
    page.get_by_role("table", name=re.compile("The pool of GPUs")).get_by_text("gpu-0").wait_for()
    page.get_by_role("link", name="study").first.click()
    page.get_by_role("heading", name="study").wait_for()
    assert page.evaluate("location.hash").startswith("#/sessions/s_")
    one.shot("dashboard-from-the-list")


@pytest.mark.parametrize("kind", KINDS)
def test_the_first_page_says_why_a_session_failed_or_ends_early(tab: NewTab, stage: UiStage, kind: str) -> None:
    one = tab(**KINDS[kind])
    failure = {"code": "attestation-failed", "detail": "the GPU's evidence was refused", "remedy": None}
    changed = {
        stage.sessions["done"]: {"phase": "FAILED", "failure": failure},
        stage.sessions["waiting"]: {"stopped_early": "the loss rose"},
    }

    def answer(route: Any) -> None:
        got = route.fetch()
        said = got.json()
        route.fulfill(
            response=got, json=said | {"items": [each | changed.get(each["id"], {}) for each in said["items"]]}
        )

    one.page.route("**/v1/sessions?*", answer)
    page = one.open()
    table = page.get_by_role("table", name=re.compile("Every session"))
    row = table.get_by_role("row", name=stage.sessions["done"])
    row.get_by_text("the GPU's evidence was refused").wait_for()
    row.get_by_role("link", name="attestation-failed").wait_for()
    table.get_by_text("the loss rose").wait_for()
    one.shot(f"dashboard-failed-{kind}")
    assert (faint(page), collided(page), cut(page)) == ([], [], [])
    assert overflow(page) <= 0


def test_names_that_would_be_markup_are_text(tab: NewTab, stage: UiStage) -> None:
    page = tab().open()
    page.get_by_role("link", name=HOSTILE).first.click()
    page.get_by_role("heading", name=HOSTILE).wait_for()
    page.get_by_text("The GPU has not begun.").wait_for()
    page.get_by_role("link", name="Contract").click()
    page.get_by_text("Model goes to").wait_for()
    assert page.evaluate("window.hostile") is None
    assert page.locator("main img, main script").count() == 0


def test_it_follows_a_session_while_that_runs(tab: NewTab, stage: UiStage) -> None:
    session = stage.submit(name="followed")
    page = tab().open(f"#/sessions/{session}/tour")
    page.locator(".heading .badge", has_text="AWAITING_APPROVAL").wait_for()
    tables = page.locator("summary", has_text="As tables")
    tables.click()
    page.evaluate("""() => {
      window.seen = new Set();
      new MutationObserver(() => {
        for (const word of document.querySelectorAll(".heading .badge")) window.seen.add(word.textContent);
        window.seen.add(document.querySelectorAll("g.visit").length);
      }).observe(document.querySelector("main"), { childList: true, subtree: true });
    }""")
    stage.approve(session)
    page.locator(".heading .badge", has_text="COMPLETED").wait_for()
    page.locator("g.visit").nth(5).wait_for()
    seen = page.evaluate("[...window.seen]")  # gone, had the page been loaded anew
    assert {"RUNNING", "EMULATED", "COMPLETED", 6} <= set(seen)
    assert page.locator(".live").get_attribute("data-state") == "ended"
    assert page.locator("details").first.evaluate("one => one.open"), (
        "what a reader unfolded stays so while the session runs"
    )
    assert tables.evaluate("one => one === document.activeElement")
    page.get_by_role("link", name="Training").click()
    page.locator("path.curve").nth(2).wait_for()


def test_the_trainings_of_collected_tours_are_on_the_timeline(tab: NewTab, stage: UiStage) -> None:
    session = stage.submit(name="collected", collect="tour")
    stage.approve(session)
    assert stage.completed(session)["rounds"] == 2
    page = (one := tab()).open(f"#/sessions/{session}/tour")
    page.locator("g.visit").nth(5).wait_for()
    trained = page.locator("svg.chart rect.span.train")
    trained.nth(1).wait_for()
    assert trained.count() == 2, "one of each round, whoever brought the records"
    assert all(words.startswith("train ") for words in trained.locator("title").all_text_contents())
    assert page.locator("svg.chart rect.span.waiting").count() == 0
    ends = page.locator("svg.chart g:not(.visit) > rect.span:not(.setup)").evaluate_all(
        "all => all.map(one => one.classList[1])"
    )
    assert ends == ["train", "validate", "scrub"] * 2
    one.shot("dashboard-collected")


def test_until_when_a_session_may_stay_paused(tab: NewTab, stage: UiStage) -> None:
    session = stage.submit(name="resting", rounds=1000)
    page = (one := tab()).open(f"#/sessions/{session}/tour")
    stage.approve(session)
    stage.call(stage.world.until(session, lambda view: view["visits_closed"]))
    stage.call(stage.world.owner.act(session, "pause"))
    line = page.get_by_text(re.compile(r"^Paused since \d{4}-.* If it is not resumed, it ends at \d{4}-"))
    line.wait_for()
    one.shot("dashboard-paused")
    stage.call(stage.world.owner.act(session, "cancel"))
    page.locator(".heading .badge", has_text="CANCELLED").wait_for()
    assert line.count() == 0


def test_a_broken_stream_is_taken_up_where_it_broke_off(tab: NewTab, stage: UiStage) -> None:
    one, asked = tab(), list[str | None]()
    whole = one.page.request.get(
        f"{one.base}/v1/sessions/{stage.sessions['done']}/events", headers={"authorization": f"Bearer {OWNER_READER}"}
    ).text()
    events = whole.split("\n\n")
    cut = "\n\n".join(events[:20]) + "\n\n" + events[20][:10]  # in the middle of an event

    def answer(route: Any) -> None:
        asked.append(route.request.headers.get("last-event-id"))
        if len(asked) == 1:
            route.fulfill(status=200, content_type="text/event-stream", body=cut)
        else:
            route.continue_()

    one.page.route("**/events*", answer)
    page = one.open(f"#/sessions/{stage.sessions['done']}/tour")
    page.locator('.live[data-state="ended"]').wait_for()
    assert asked == [None, re.findall(r"^id: (\d+)$", "\n\n".join(events[:20]), re.M)[-1]]
    assert page.locator("g.visit").count() == 6


def test_the_timeline_by_keyboard(tab: NewTab, stage: UiStage) -> None:
    page = tab().open(f"#/sessions/{stage.sessions['done']}/tour")
    page.locator('.live[data-state="ended"]').wait_for()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "content"
    assert stage.sessions["done"] in page.url
    reached = []
    for _ in range(60):
        page.keyboard.press("Tab")
        reached.append(
            page.evaluate("document.activeElement.getAttribute('aria-label') ?? document.activeElement.textContent")
        )
        if reached[-1].startswith("Visit "):
            break
    assert {"Tour", "Artifacts", "Zoom in", "Replay position"} <= set(reached)
    assert page.locator(".chosen h3").inner_text().startswith("Visit 1 at city")
    page.keyboard.press("ArrowRight")
    assert page.locator(".chosen h3").inner_text().startswith("Visit 2 at harbour")
    assert "leaf 1" in page.locator(".chosen").inner_text()
    before = page.locator("g.visit .frame").first.get_attribute("width")
    page.get_by_role("button", name="Zoom in").focus()
    page.keyboard.press("Enter")
    assert page.locator("g.visit .frame").first.get_attribute("width") != before
    page.get_by_role("button", name="Later").focus()
    for _ in range(3):
        page.keyboard.press("Enter")
        assert page.locator("g.visit").count() > 0
        assert page.locator('g.visit[tabindex="0"]').count() == 1, "wherever the window is, Tab comes to a visit"


def test_replay_shows_the_tour_up_to_its_position(tab: NewTab, stage: UiStage) -> None:
    page = tab().open(f"#/sessions/{stage.sessions['done']}/tour")
    page.locator('.live[data-state="ended"]').wait_for()
    slider = page.get_by_role("slider", name="Replay position")
    slider.fill("0")
    assert page.locator("g.visit").count() == 0
    slider.fill("1000")
    assert page.locator("g.visit").count() == 6


def test_the_theme_is_chosen_and_kept(tab: NewTab, stage: UiStage) -> None:
    page = tab(color_scheme="dark").open()
    ground = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(ground)
    page.get_by_label("Theme").select_option("light")
    assert page.evaluate(ground) != dark
    page.reload()
    page.get_by_role("heading", name="Queue").wait_for()
    assert page.evaluate(ground) != dark
    page.get_by_label("Theme").select_option("system")
    assert page.evaluate(ground) == dark


def test_the_token_stays_in_its_tab(tab: NewTab, stage: UiStage) -> None:
    page = (one := tab(token="")).open()
    page.get_by_label("Bearer token").fill("not-a-token-of-anybody")
    page.keyboard.press("Enter")
    page.get_by_text("token-unknown").wait_for()
    assert page.evaluate("sessionStorage.length") == 0
    assert one.complaints.pop().startswith("error: Failed to load resource")  # the browser's own word on a 401
    page.get_by_label("Bearer token").fill(OWNER_READER)
    page.keyboard.press("Enter")
    page.get_by_text("reading as owner").wait_for()
    button = page.get_by_role("button", name="copy as curl: /v1/gpus")
    button.click()
    page.get_by_text("copied").first.wait_for()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == f"""curl -sS -H "Authorization: Bearer $GPUT_TOKEN" '{one.base}/v1/gpus'"""
    assert OWNER_READER not in page.content() + page.url + page.evaluate("JSON.stringify(localStorage)")
    page.get_by_role("button", name="Forget the token").click()
    page.get_by_label("Bearer token").wait_for()
    assert page.evaluate("sessionStorage.length") == 0


def test_an_auditor_is_told_why_there_are_no_losses(tab: NewTab, stage: UiStage) -> None:
    page = tab(token=READER).open(f"#/sessions/{stage.sessions['done']}/training")
    page.get_by_text("Losses are released to the session's owner").wait_for()
    page.get_by_text("recency bias: not known yet").wait_for()
    assert page.locator("path.curve").count() == 0


def test_two_manifests_are_compared(tab: NewTab, stage: UiStage) -> None:
    page = tab().open(f"#/sessions/{stage.sessions['done']}/contract")
    page.get_by_text("3 approvals with a profile of the dataset.").wait_for()
    page.get_by_text("GPU time in all").wait_for()
    page.locator(f'#other option[value="{stage.sessions["waiting"]}"]').wait_for(state="attached")
    page.get_by_label("Compare with the manifest of").select_option(stage.sessions["waiting"])
    row = page.get_by_role("row", name=re.compile(r"^rounds "))
    assert row.inner_text().split("\t") == ["rounds", "3", "2", "changed"]
    assert page.evaluate("window.hostile") is None
