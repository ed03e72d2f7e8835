"""An answer of the right names and of other types is the peer's fault, never an internal error; what a holder's datasets are is shown."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gput.__main__ import main
from tests.gput.forgery import Forged, Forger, forger
from tests.gput.test_other_answers import SESSION
from tests.gput.test_other_commands import answering, words
from tests.world.fixtures import material

__all__ = ["forger", "material", "words"]

NAMES = (
    "key", "public_key", "key_valid_until", "version", "owner", "holders", "waiting_for", "failure", "manifest", "state", "dataset",
    "decision", "path", "options", "units", "classes", "source", "fault", "program", "document", "signature", "durations", "outcome",
    "records", "index", "closed_at", "model", "losses", "statement", "result", "checks", "evidence",
)  # fmt: skip
COMMANDS = [
    "plan --session SESSION --holders 3", "party datasets", "party declare ehr --unit dose=mg", "party revoke-key north --yes",
    "party enrol north PUBLIC", "party keys north", "party requests", "party request SESSION", "session visits SESSION",
    "session steps SESSION", "session show SESSION", "session draft PROGRAM", "attest session SESSION",
]  # fmt: skip


def deep() -> list[Any]:
    """A list within a list and so on, further than one may follow."""
    found: list[Any] = []
    for _ in range(700):
        found = [found]
    return found


VALUES = {"int": 7, "null": None, "list": [], "object": {}, "text": "x", "list of ints": [7], "deep": deep()}


@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize("command", COMMANDS)
def test_values_of_other_types_are_the_peers_fault(
    command: str, kind: str, words: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    known = {"id": SESSION, "session": SESSION, "name": "north", "role": "holder", "phase": "COMPLETED"}
    row = dict.fromkeys(NAMES, VALUES[kind]) | known
    answering(monkeypatch, row | {"items": [row], "next": None})
    code = main([words.get(word, word) for word in command.split()])
    said = capsys.readouterr().err
    assert "internal error" not in said
    assert code in (0, 2, 4, 6), (
        said
    )  # what is right of it is shown; else it is the answer's shape, or what stands in a document
    if kind == "deep":
        assert (code, "[peer-unintelligible]" in said) == (6, True), said


def test_where_a_dataset_comes_from_and_what_is_wrong_with_it_is_shown(
    tmp_path: Path,
    forger: Callable[[Forged], Forger],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "operator.token").write_text("00" * 32)
    monkeypatch.setenv("GPUT_HOLDER_TOKEN", str(tmp_path / "operator.token"))
    rows = [
        {
            "name": "ehr",
            "path": "ehr.csv",
            "options": {"units": {"dose": ["mg"]}},
            "source": "withdrawn",
            "fault": None,
        },
        {"name": "labs", "path": "labs.csv", "options": {}, "source": "settings", "fault": "its options were damaged"},
    ]
    forger(lambda request: (200, {"items": rows, "next": None}))
    assert main(["party", "datasets"]) == 0
    [head, ehr, labs] = capsys.readouterr().out.splitlines()
    assert head.split() == ["name", "path", "units", "classes", "source", "fault"]
    assert "dose=mg" in ehr
    assert "withdrawn" in ehr
    assert "its options were damaged" in labs
