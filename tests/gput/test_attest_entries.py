"""Files of several pieces: every entry is judged or the file is refused; none is passed over without a word."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from gput.__main__ import main
from shared.attestation.evidence_files import MAX_PIECES, pieces_of
from shared.errors import BadRequest
from tests.attestation.cpu_world import Machine
from tests.attestation.ear_world import KEY, tdx, token

GOOD = {"token": token(tdx(Machine()))}
BAD = {"token": token(tdx(Machine(), data=bytes(64)))}
Form = Callable[[Sequence[object]], bytes]
FORMS: dict[str, Form] = {
    "lines": lambda entries: b"\n".join(json.dumps(entry).encode() for entry in entries),
    "list": lambda entries: json.dumps(list(entries)).encode(),
    "page": lambda entries: json.dumps({"items": list(entries), "next": None}).encode(),
}
forms = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)


@forms
def test_more_entries_than_are_judged_are_refused(form: Form) -> None:
    assert len(pieces_of(form([GOOD] * MAX_PIECES), "x")) == MAX_PIECES
    with pytest.raises(BadRequest, match=f"more than {MAX_PIECES} pieces") as caught:
        pieces_of(form([GOOD] * MAX_PIECES + [BAD]), "x")
    assert caught.value.code == "unknown-evidence"


@forms
@pytest.mark.parametrize(
    "unknown", [{"tokn": BAD["token"]}, {"runtime_data": "QQ==", "evidence": {}}, {}, {"token": ""}]
)
def test_an_entry_that_is_nothing_known_is_refused_by_name(form: Form, unknown: dict[str, object]) -> None:
    assert [piece.name for piece in pieces_of(form([GOOD, GOOD]), "x")] == ["x#0", "x#1"]
    with pytest.raises(BadRequest, match="x#1: ") as caught:
        pieces_of(form([GOOD, unknown]), "x")
    assert (caught.value.code, bool(caught.value.remedy)) == ("unknown-evidence", True)


@pytest.mark.parametrize("entry", [3, "eyJ.a.b", None, [GOOD]])
def test_an_entry_that_is_no_object_is_refused_by_name(entry: object) -> None:
    for name in ("list", "page"):
        with pytest.raises(BadRequest, match="x#1: ") as caught:
            pieces_of(FORMS[name]([GOOD, entry]), "x")
        assert caught.value.code == "unknown-evidence"


def test_the_command_does_not_accept_the_first_of_too_many(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, key = tmp_path / "results.jsonl", tmp_path / "key.pub"
    key.write_bytes(KEY.public_pem)
    verify = [
        "attest",
        "verify",
        str(file),
        "--verifier-key",
        str(key),
        "--allow-emulated",
        "--at",
        "2026-09-21T14:13:20Z",
    ]
    for entries, code in (
        ([GOOD] * 2, 0),
        ([GOOD, BAD], 4),
        ([GOOD] * MAX_PIECES + [BAD], 2),
        ([GOOD, {"tokn": ""}], 2),
    ):
        file.write_bytes(FORMS["lines"](entries))
        assert main(verify) == code, capsys.readouterr().err
        capsys.readouterr()
