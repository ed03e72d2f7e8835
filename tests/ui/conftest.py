"""Fixtures of the pages' tests: one living world, one browser, a fresh tab per test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.ui.browser import Tab, started
from tests.ui.stage import OWNER_READER, UiStage
from tests.world.world_stage import on_stage

NewTab = Callable[..., Tab]


@pytest.fixture(scope="session")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UiStage]:
    """All services, the orchestrator and a holder on loopback ports. Tests leave its sessions as they are."""
    with on_stage(UiStage, tmp_path_factory) as stage:
        yield stage


@pytest.fixture(
    scope="module"
)  # Playwright's loop runs in this thread as long as it lives, and other modules have loops of their own
def browser() -> Iterator[Any]:
    with started() as browser:
        yield browser


@pytest.fixture
def tab(browser: Any, stage: UiStage) -> Iterator[NewTab]:
    """Opens tabs; at the end none may have complained."""
    tabs = list[Tab]()

    def new(base: str | None = None, token: str = OWNER_READER, **options: Any) -> Tab:
        tabs.append(Tab(browser, base or stage.orchestrator.url, token, **options))
        return tabs[-1]

    yield new
    for one in tabs:
        one.close()
    assert [one.complaints for one in tabs] == [[] for _ in tabs]


@pytest.fixture(scope="module")
def page(browser: Any, stage: UiStage) -> Iterator[Any]:
    """A page of the dashboard to run its modules in: one of a file's tests, for they leave it as it is."""
    one = Tab(browser, stage.orchestrator.url, OWNER_READER)
    page = one.open()
    page.get_by_role("heading", name="Queue").wait_for()
    yield page
    one.close()
    assert one.complaints == []


@pytest.fixture
def troubled(tab: NewTab, stage: UiStage) -> Any:
    """A tab of the operator's; what the browser itself says of refused requests is forgotten in the end."""
    one = tab(stage.holder.url, stage.tokens["operator"], hurried=True)
    yield one
    one.complaints[:] = [text for text in one.complaints if not text.startswith("error: Failed to load resource")]
