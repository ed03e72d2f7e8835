"""How a demo begins: each run in a folder of its own, and what it cannot do is refused before anything is made."""

from __future__ import annotations

import os
from collections.abc import Coroutine
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gput.__main__ import main
from gput.local.demo import Demo
from gput.local.demos.catalogue import STATE, keep, plan_of
from shared.errors import BadRequest, Conflict
from shared.service.data_dir import held


def begun(monkeypatch: pytest.MonkeyPatch, at: Path) -> list[Path]:
    """Folders of the runs that are begun from now on within one second; none of them is made to run."""
    folders: list[Path] = []

    async def stopped(demo: Demo, doing: Coroutine[Any, Any, int]) -> int:
        doing.close()
        folders.append(demo.folder)
        return 130

    monkeypatch.setattr("gput.commands.demo._until_stopped", stopped)
    monkeypatch.setattr("gput.commands.demo.datetime", SimpleNamespace(now=lambda: datetime(2026, 1, 2, 3, 4, 5)))
    monkeypatch.chdir(at)
    return folders


def test_runs_that_begin_within_a_second_have_a_folder_each(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folders = begun(monkeypatch, tmp_path)
    assert [main(["demo", "hospitals"]) for _ in range(3)] == [130] * 3
    name = "hospitals-20260102-030405"
    assert [folder.name for folder in folders] == [name, f"{name}-2", f"{name}-3"]
    assert (tmp_path / "runs" / "latest").resolve() == folders[-1].resolve()
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == [name, f"{name}-2", f"{name}-3", "latest"]


def test_a_latest_that_is_no_link_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = begun(monkeypatch, tmp_path)
    (tmp_path / "runs" / "latest").mkdir(parents=True)
    assert main(["demo", "hospitals"]) == BadRequest.exit_code
    assert "[cannot-write]" in capsys.readouterr().err
    assert (folders, [path.name for path in (tmp_path / "runs").iterdir()]) == ([], ["latest"])


@pytest.mark.parametrize("option", ["--rounds", "--steps"])
def test_more_than_a_manifest_may_say_is_refused_at_once(
    option: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    begun(monkeypatch, tmp_path)
    assert main(["demo", "hospitals", option, str(10**23)]) == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["list", "stale-key"])
def test_a_program_that_asks_for_json_is_not_told_a_screen(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("gput.local.attacks.tour.stage_for", lambda *_: pytest.fail("it began"))
    assert main(["demo", "--attack", name, "--format", "json"]) == 2
    told = capsys.readouterr()
    assert (told.out, "[demo-option]" in told.err) == ("", True)


def test_a_smoke_test_that_is_not_run_has_no_json_either(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["smoke", "--local", "--dry-run"]) == 0
    assert "nothing was done" in capsys.readouterr().err
    assert main(["smoke", "--local", "--dry-run", "--format", "json"]) == 2
    told = capsys.readouterr()
    assert (told.out, "--format" in told.err) == ("", True)


@pytest.mark.parametrize("words", [["hospitals"], ["--resume"], ["--attack", "stale-key"]], ids=" ".join)
def test_two_do_not_run_in_one_folder(
    words: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The second wrote settings, with other ports, over those of the first before one of its services found a folder in use."""
    folders = begun(monkeypatch, tmp_path)
    assert main(["demo", "hospitals", "--dir", "run"]) == 130
    if "--resume" in words:
        (tmp_path / "run" / STATE).write_bytes(keep("s_x", plan_of("hospitals", {})))
    with held(tmp_path / "run"):
        assert main(["demo", *words, "--dir", "run"]) == Conflict.exit_code
    assert "[demo-running]" in capsys.readouterr().err
    assert main(["demo", *words, "--dir", "run"]) == 130, "it has ended"
    assert len(folders) == 2


def test_a_folder_that_cannot_be_written_to_is_said_in_the_demos_words(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """To go on needs no new folder, and what holds one against another process would speak of a service's `data_dir`."""
    begun(monkeypatch, tmp_path)
    assert main(["demo", "hospitals", "--dir", "run"]) == 130
    (tmp_path / "run" / STATE).write_bytes(keep("s_x", plan_of("hospitals", {})))
    capsys.readouterr()
    allowed = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK and allowed(path, mode))
    assert main(["demo", "--resume", "--dir", "run"]) == 2
    assert f"cannot write to {tmp_path / 'run'}: permission denied. [cannot-write]" in capsys.readouterr().err
