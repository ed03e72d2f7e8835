"""A measurement that fails because a service of its own ended: the log that the error names is there to be read, and nothing else."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest

import gput.commands
from gput.__main__ import main
from gput.local.process import Service


def test_the_log_that_an_error_names_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def broken(service: Service) -> dict[str, Any]:
        service.log.parent.mkdir(parents=True, exist_ok=True)
        service.log.write_text("why\n")
        raise service._failed("ended")

    monkeypatch.setattr(Service, "start", broken)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert main(["bench", "life", "--holders", "3"]) == 6
    [log] = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert log.read_text() == "why\n"
    assert f"The whole log is {log}." in capsys.readouterr().err


def test_no_command_works_in_a_folder_that_takes_its_logs_along() -> None:
    """The other benches, which take seconds to set up before anything can fail: whatever works in a passing folder takes `fleeting`."""
    sources = Path(gput.commands.__file__).parent.rglob("*.py")
    assert [path.name for path in sources if "TemporaryDirectory" in path.read_text()] == []
