"""The dashboard while its service is away for a moment, and pages that stay open: nothing is said that is not so any more."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.ui.browser import Tab
from tests.ui.conftest import NewTab
from tests.ui.stage import OWNER_READER, UiStage

AWAY = {
    "type": "about:blank",
    "title": "Away",
    "status": 503,
    "code": "unavailable",
    "detail": "It is away for a moment.",
}
COMPLAINT = "error: Failed to load resource"


@pytest.fixture
def troubled(tab: NewTab) -> Any:
    """A tab; what the browser itself says of refused requests is forgotten in the end."""
    one = tab()
    yield one
    one.complaints[:] = [text for text in one.complaints if not text.startswith(COMPLAINT)]


def refuse(one: Tab, pattern: Any) -> None:
    """From now on, until `unroute`."""
    one.page.route(
        pattern, lambda route: route.fulfill(status=503, content_type="application/problem+json", body=json.dumps(AWAY))
    )


def test_a_list_that_cannot_be_read_is_not_an_empty_queue_and_emulated_stays_said(troubled: Tab) -> None:
    page = troubled.open()
    page.get_by_role("table", name=re.compile("Every session")).get_by_text("visits").first.wait_for()
    page.locator(".emulated").wait_for()
    lists = re.compile(r"/v1/sessions\?")
    refuse(troubled, lists)
    page.get_by_text(AWAY["detail"]).first.wait_for()
    page.wait_for_timeout(500)
    queue = page.locator("section", has=page.get_by_role("heading", name="Queue"))
    assert "Nothing is queued" not in queue.inner_text()
    assert page.locator(".emulated").count() == 1
    page.unroute(lists)
    queue.get_by_text("absent (approval)").wait_for()
