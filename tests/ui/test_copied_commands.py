"""Commands that the pages give to copy, and what is done where no folder is named: each session's receipts have a folder of their own."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from gput.__main__ import main
from gput.receipt_folder import write
from shared.crypto.signing import PartyKey
from tests.gput.forged_logs import Forger, Visited
from tests.gput.test_gput_commands import NOBODY
from tests.ui.conftest import NewTab
from tests.ui.stage import UiStage

COPIED = """async session => {
  const { checking, saving } = await import("/ui/common/receipts_view.js");
  return [checking(session), saving(session)];
}"""


@pytest.fixture(scope="module")
def beside() -> Iterator[Executor]:
    """What drives the browser has an event loop in this thread; commands and forgers want one of their own."""
    with ThreadPoolExecutor(1) as executor:
        yield executor


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory, beside: Executor) -> tuple[Forger, Forger]:
    """Two sessions."""
    one, other = (beside.submit(Forger, tmp_path_factory.mktemp("session")).result() for _ in range(2))
    return one, other


@pytest.fixture
def run(
    two: tuple[Forger, Forger], beside: Executor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], list[int]]:
    """Runs commands that stand joined by `&&`, in one folder, as a reader would who copies them; their exit codes."""
    known = {forger.session: forger for forger in two}

    async def save(client: object, session: str, folder: Path, trust: Path) -> None:
        write(folder, known[session].bundle(Visited(1)), known[session].installation.trust)

    PartyKey.generate().save(tmp_path / "k.pem")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("gput.receipts.save", save)
    monkeypatch.setenv("GPUT_URL", NOBODY)
    monkeypatch.setenv("GPUT_KEY", "k.pem")

    def ran(line: str) -> list[int]:
        words = line.replace("TRUST_FOLDER", str(two[0].installation.trust))
        return [beside.submit(main, shlex.split(one)[1:]).result() for one in words.split(" && ")]

    return ran


def test_commands_of_two_sessions_are_copied_into_one_folder(
    tab: NewTab, two: tuple[Forger, Forger], run: Callable[[str], list[int]], tmp_path: Path
) -> None:
    page = tab().open()
    page.get_by_role("heading", name="Queue").wait_for()
    for session in (two[0].session, two[1].session, two[0].session):
        assert [run(line) for line in page.evaluate(COPIED, session)] == [[0, 0], [0]]
    assert {path.name for path in tmp_path.iterdir()} == {"k.pem", *(f"receipts-{forger.session}" for forger in two)}


def test_where_no_folder_is_named_each_session_has_its_own(
    two: tuple[Forger, Forger], run: Callable[[str], list[int]], tmp_path: Path
) -> None:
    for forger in (*two, two[0]):
        save = f"gput session receipts {forger.session} --trust TRUST_FOLDER"
        assert run(f"{save} && gput receipts verify receipts-{forger.session}") == [0, 0]
    assert {path.name for path in tmp_path.iterdir()} == {"k.pem", *(f"receipts-{forger.session}" for forger in two)}


def test_every_page_gives_these_commands(tab: NewTab, stage: UiStage) -> None:
    session = stage.sessions["done"]
    save = f"gput session receipts {session} --trust TRUST_FOLDER -o receipts-{session}"
    check = f"{save} && gput receipts verify receipts-{session}"

    def given(page: Any) -> str:
        return str(page.locator("code", has_text="gput session receipts").inner_text())

    assert given(tab().open(f"#/sessions/{session}/artifacts")) == save
    assert given(tab().open(f"#/sessions/{session}/receipts")) == check
    holders = tab(stage.holder.url, stage.tokens["auditor"]).open(f"#/requests/{session}")
    assert given(holders).startswith(f"{check} --head 6:")
