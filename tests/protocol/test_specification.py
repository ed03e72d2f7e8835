"""The model-checked specification speaks of the code's own tables, and its checker finds what it must."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from docs.spec import check
from docs.spec.tables import FILE, tables

needs_spin = pytest.mark.skipif(
    not (shutil.which("spin") and shutil.which("gcc")), reason="needs spin and gcc; `make spec` says how to get them"
)


def test_the_models_moves_are_the_codes() -> None:
    assert FILE.read_text() == tables(), "run: python -m docs.spec.tables"


def test_every_defence_that_is_taken_away_is_in_the_model() -> None:
    model = (FILE.parent / "travel.pml").read_text()
    assert set(check.DEFENCES) == {word for word in model.replace("(", " ").split() if word.startswith("WITHOUT_")} - {
        "WITHOUT_…"
    }


@needs_spin
@pytest.mark.slow
def test_a_missing_scrub_breaks_a_law_and_a_present_one_does_not(tmp_path: Path) -> None:
    mode, bounds = check.DEFENCES["WITHOUT_SCRUB"]
    without, whole = tmp_path / "without", tmp_path / "whole"
    without.mkdir()
    whole.mkdir()
    assert check.run(check.Case(mode, bounds, without="WITHOUT_SCRUB"), without).errors
    sound = check.run(check.Case(mode, bounds), whole)
    assert (sound.errors, sound.complete) == (0, True)
    assert sound.states > 100


@needs_spin
@pytest.mark.slow
def test_the_quick_configurations_hold(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["check", "--quick"])
    assert check.main() == 0
    assert "0 of the checks failed" in capsys.readouterr().out
