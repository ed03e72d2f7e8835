"""A successor is written from what its own owner signed: a manifest that an answer made up, or another one, is no beginning of it."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import httpx2
import pytest

from gput.__main__ import main
from gput.client import UNATTESTED, AsyncClient
from gput.receipt_folder import TRUST
from gput.smoke import verified
from shared.attestation.owners import LABEL
from shared.canonical import json_bytes, sha256
from shared.claims.manifest import Manifest
from shared.crypto.signing import PartyKey
from shared.errors import GputError
from tests.gput.forgery import ORCHESTRATOR, Forged, Forger, forger
from tests.world.world_material import Material

__all__ = ["forger"]

SESSION, OTHER = "s_aaaaaaaaaaaaaaaa", "s_bbbbbbbbbbbbbbbb"


@pytest.fixture
def owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PartyKey:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GPUT_KEY", "owner.pem")
    key = PartyKey.generate()
    key.save(tmp_path / "owner.pem")
    return key


def answering(of: Manifest, document: bytes, signature: bytes, **end: Any) -> Forged:
    """Of a session of this manifest that has ended, shown as this document and signature; `end`: what is said otherwise of its end."""
    said = {
        "session": SESSION, "manifest": sha256(document).hex(), "model": "ab" * 32, "optimiser": "cd" * 32, "step": 1, "log_size": 3,
        "log_root": "ef" * 32, "contributors": [{"holder": one.holder, "key": one.key, "records": 0} for one in of.roster],
    } | end  # fmt: skip
    parties = [{"name": one.holder, "role": "holder", "key": one.key} for one in of.roster]
    answers = {
        f"/v1/sessions/{SESSION}/continuation": said,
        f"/v1/sessions/{SESSION}/manifest": {
            "document": b64encode(document).decode(),
            "signature": b64encode(signature).decode(),
        },
        "/v1/parties": {"items": parties, "next": None},
    }
    return lambda request: (200, answers.get(request.url.path, {"id": OTHER, "phase": "AWAITING_APPROVAL"}))


def succeed(capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    code = main(["session", "succeed", SESSION, "--rounds", "1", "--submit", "-o", "next.json"])
    return code, capsys.readouterr().err


def test_what_its_owner_signed_is_gone_on_with(
    owner: PartyKey,
    gput_material: Material,
    forger: Callable[[Forged], Forger],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    manifest = gput_material.manifest()
    document = manifest.canonical()
    asked = forger(answering(manifest, document, owner.sign(LABEL, document)))
    assert succeed(capsys)[0] == 0
    assert asked.told == ["POST /v1/sessions"]
    assert json.loads((tmp_path / "next.json").read_text())["predecessor"]["session"] == SESSION


@pytest.mark.parametrize("field", [
    {"output": {"release_to": ["owner", "holders"]}}, {"rounds": 99}, {"name": "another"},
], ids=str)  # fmt: skip
def test_one_changed_field_is_no_manifest_of_its_owner(
    field: dict[str, Any],
    owner: PartyKey,
    gput_material: Material,
    forger: Callable[[Forged], Forger],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    manifest = gput_material.manifest()
    signature = owner.sign(LABEL, manifest.canonical())
    changed = json_bytes(manifest.model_dump(mode="json") | field)
    asked = forger(answering(manifest, changed, signature))
    code, said = succeed(capsys)
    assert (code, "[bad-signature]" in said) == (4, True), said
    assert (asked.told, (tmp_path / "next.json").exists()) == ([], False)


@pytest.mark.parametrize("end", [{"session": OTHER}, {"manifest": "00" * 32}], ids=str)
def test_the_end_of_another_session_is_not_gone_on_from(
    end: dict[str, str],
    owner: PartyKey,
    gput_material: Material,
    forger: Callable[[Forged], Forger],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    manifest = gput_material.manifest()
    document = manifest.canonical()
    asked = forger(answering(manifest, document, owner.sign(LABEL, document), **end))
    code, said = succeed(capsys)
    assert (code, "[predecessor-mismatch]" in said) == (4, True), said
    assert (asked.told, (tmp_path / "next.json").exists()) == ([], False)


@pytest.mark.parametrize("same", [True, False])
async def test_a_smoke_test_s_receipts_are_of_the_manifest_that_was_submitted(
    same: bool, gput_material: Material, forger: Callable[[Forged], Forger], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """Receipts of a roster and policies that whoever answers chose would hold, too; and where there are none, none is wrong."""
    monkeypatch.setattr("gput.smoke.verify", Mock(return_value=Mock(receipts=0)))
    asked = gput_material.manifest()
    told = asked if same else asked.model_copy(update={"name": "another"})
    for name in TRUST:
        (tmp_path / name).write_text("believed")

    def answer(request: httpx2.Request) -> tuple[int, Any]:
        signed = {"document": b64encode(told.canonical()).decode(), "signature": ""}
        ends = {"head": {"size": 0}, "manifest": signed}
        return 200, ends.get(request.url.path.rpartition("/")[2], {"items": [], "next": None})

    peers = forger(answer).peers()
    async with AsyncClient(ORCHESTRATOR, PartyKey.generate(), trust=UNATTESTED, peers=peers) as client:
        with pytest.raises(GputError) as found:
            await verified(client, SESSION, tmp_path / "receipts", tmp_path, asked)
    assert found.value.code == ("smoke-failed" if same else "other-manifest")
