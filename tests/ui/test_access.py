"""Both pages by keyboard, by the accessibility tree and by the wire: every control reached, seen, named; nothing from elsewhere."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import pytest

from shared.service.ui import COMMON, POLICY
from tests.ui.access import beyond_keyboard, disorder, nameless
from tests.ui.browser import PHONE, Tab
from tests.ui.conftest import NewTab
from tests.ui.looks import faint, overflow
from tests.ui.stage import OWNER_READER, UiStage
from tests.ui.test_holder_page import CHECKED
from tests.ui.test_ui_files import FOLDERS

MOST_FILES_BYTES = 184 * 1024
"""Of one page's own files, uncompressed: what a visit to it moves beside the API's answers."""
PLACES: dict[str, tuple[str, str, str | re.Pattern[str]]] = {
    "dashboard": ("orchestrator", "#/", "The pool of GPUs"),
    "tour": ("orchestrator", "#/sessions/{session}/tour", "One lane per party"),
    "contract": ("orchestrator", "#/sessions/{session}/contract", "digest holds"),
    "trust": ("orchestrator", "#/sessions/{session}/trust", "The machine of"),
    "receipts": ("orchestrator", "#/sessions/{session}/receipts", "VERIFIED HERE"),
    "training": ("orchestrator", "#/sessions/{session}/training", "recency bias"),
    "artifacts": ("orchestrator", "#/sessions/{session}/artifacts", "gput session export"),
    "holder": ("holder", "#/", CHECKED),
    "request": ("holder", "#/requests/{session}", "VERIFIED HERE"),
}
Opened = Callable[..., tuple[Tab, Any]]


@pytest.fixture
def opened(tab: NewTab, stage: UiStage) -> Opened:
    """A place of one of the pages, once it shows what it is for."""

    def new(place: str, **options: Any) -> tuple[Tab, Any]:
        service, where, shown = PLACES[place]
        server, token = {
            "orchestrator": (stage.orchestrator, OWNER_READER), "holder": (stage.holder, stage.tokens["auditor"]),
        }[service]  # fmt: skip
        one = tab(server.url, token, **options)
        page = one.open(where.format(session=stage.sessions["done"]))
        page.get_by_text(shown).first.wait_for()
        return one, page

    return new


@pytest.mark.parametrize("place", PLACES)
def test_every_control_is_reached_seen_and_named(opened: Opened, place: str) -> None:
    _, page = opened(place)
    page.locator("[aria-busy]").first.wait_for(state="detached")
    assert beyond_keyboard(page) == []
    assert nameless(page) == []
    assert disorder(page) == []


@pytest.mark.parametrize("colours", ["light", "dark"])
def test_where_the_token_is_asked_for(tab: NewTab, stage: UiStage, colours: str) -> None:
    for server in (stage.orchestrator, stage.holder):
        one = tab(server.url, "", color_scheme=colours, viewport=PHONE)
        page = one.open()
        page.get_by_label("Bearer token").wait_for()
        assert faint(page) == []
        assert overflow(page) <= 0
        assert beyond_keyboard(page) == []
        assert nameless(page) == []
        assert disorder(page) == []


@pytest.mark.parametrize("place", ["receipts", "request"])
def test_nothing_comes_from_elsewhere_and_the_page_is_light(tab: NewTab, stage: UiStage, place: str) -> None:
    service, where, shown = PLACES[place]
    server = {"orchestrator": stage.orchestrator, "holder": stage.holder}[service]
    one = tab(server.url, OWNER_READER if service == "orchestrator" else stage.tokens["auditor"])
    answers = list[Any]()
    one.page.on("response", lambda answer: answers.append(answer))  # a builtin takes no mark of Playwright's
    page = one.open(where.format(session=stage.sessions["done"]))
    page.get_by_text(shown).first.wait_for()
    assert {urlsplit(answer.url).netloc for answer in answers} == {urlsplit(server.url).netloc}
    files = [answer for answer in answers if "/ui/" in answer.url]
    assert len(files) > 10
    assert {answer.headers["content-security-policy"] for answer in files} == {POLICY}
    assert sum(len(answer.body()) for answer in files) <= MOST_FILES_BYTES


@pytest.mark.parametrize("service", FOLDERS)
def test_all_files_of_a_page_are_light(service: str) -> None:
    files = [*COMMON.iterdir(), *FOLDERS[service].iterdir()]
    assert sum(path.stat().st_size for path in files) <= MOST_FILES_BYTES


@pytest.mark.parametrize("service", ["orchestrator", "holder"])
def test_an_address_that_names_nothing_says_so_and_asks_for_nothing(tab: NewTab, stage: UiStage, service: str) -> None:
    what, server, token = {
        "orchestrator": ("session", stage.orchestrator, OWNER_READER), "holder": ("request", stage.holder, stage.tokens["auditor"]),
    }[service]  # fmt: skip
    one, asked = tab(server.url, token), list[str]()
    one.page.on("request", lambda call: asked.append(urlsplit(call.url).path))
    for typed in ("s_nope", "s_0123456789abcdeF", "%00"):
        page = one.open(f"#/{what}s/{typed}")
        page.get_by_role("heading", name=f"There is no such {what}").wait_for()
        assert page.title().startswith(f"No such {what} · ")
        assert disorder(page) == []
    assert {path for path in asked if path.startswith("/v1/")} <= {"/v1/whoami", "/v1/identity"}
    page.get_by_role("link", name="To the list of them").click()
    page.get_by_role("link", name=stage.sessions["done"]).first.wait_for()


def test_a_problem_that_lasts_is_said_once(troubled: Any, stage: UiStage) -> None:
    """Its box is a live region: drawn anew at each try, it was read out every few seconds."""
    path, answer = "**/v1/policy", {"status": 503, "json": {"code": "unavailable", "detail": "Away."}}
    troubled.page.route(path, lambda route: route.fulfill(**answer))
    page = troubled.open("#/")
    box = page.locator("main .problem", has_text="Away.")
    box.evaluate("one => one.dataset.kept = 'yes'")
    for _ in range(3):
        with page.expect_response(path):
            pass
    assert page.locator("main .problem[data-kept]").count() == 1
    answer["json"] = {"code": "unavailable", "detail": "Still away."}
    page.locator("main .problem", has_text="Still away.").wait_for()
    page.unroute(path)
    page.locator("main .problem").wait_for(state="detached")


def test_a_request_that_cannot_be_read_keeps_its_heading(troubled: Any) -> None:
    page = troubled.open("#/requests/s_0123456789abcdef")
    page.locator("main .problem", has_text="not-found").wait_for()
    assert page.locator("h1").inner_text() == "s_0123456789abcdef"
    assert disorder(page) == []
    page.close()  # it would ask again


def test_a_problems_code_leads_to_its_page(tab: NewTab, stage: UiStage) -> None:
    for server in (stage.orchestrator, stage.holder):
        one = tab(server.url, "a-token-of-nobody")
        page = one.open()
        page.get_by_role("link", name="token-unknown").click()
        page.get_by_role("heading", name="token-unknown").wait_for()
        assert page.url == f"{server.url}/problems/token-unknown"
        assert page.get_by_text("What to do").count() == 1
        page.go_back()
        page.get_by_label("Bearer token").wait_for()
        while one.complaints and one.complaints[-1].startswith("error: Failed to load resource"):
            one.complaints.pop()  # the browser's own word on each 401


def test_a_service_that_does_not_answer_has_a_code_without_a_page(tab: NewTab, stage: UiStage) -> None:
    one = tab()
    one.page.route("**/v1/whoami", lambda route: route.abort())
    page = one.open()
    page.get_by_text("no-answer").wait_for()
    assert page.get_by_role("link", name="no-answer").count() == 0
    page.close()  # it would ask again
    assert all(text.startswith("error: Failed to load resource") for text in one.complaints)
    one.complaints.clear()
