"""What the orchestrator says it relied on: signed by the key that its own quote covers, check by check, as the command line shows it."""

from __future__ import annotations

import base64
import copy
import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from gput.__main__ import main
from gput.commands import attest
from gput.output import Format
from shared.attestation.ear import read_result
from shared.errors import GputError, VerificationFailed
from shared.service.clock import system_clock
from tests.conformance.stage import HOLDER, Stage, signed


def items(stage: Stage) -> list[dict[str, Any]]:
    path = f"/v1/sessions/{stage.sessions['done']}/attestations"
    found: list[dict[str, Any]] = stage.request("orchestrator", "GET", path, signed(stage.keys["owner"])).json()[
        "items"
    ]
    return found


def test_the_gpu_and_every_holder_were_attested(stage: Stage) -> None:
    found, session = items(stage), stage.sessions["done"]
    roster = {holder["holder"] for holder in stage.request(
        "orchestrator", "GET", f"/v1/sessions/{session}", signed(stage.keys["owner"])
    ).json()["holders"]}  # fmt: skip
    assert {item["subject"] for item in found} == {"gpu", *(f"cvm:{name}" for name in roster)}
    for item in found:
        result = read_result(item["token"], bytes.fromhex(item["signing_key"]), at=system_clock())
        assert (result.accepted, result.emulated, result.about["session"]) == (True, True, session)
        part = result.submodules[item["subject"]]
        assert (item["verdict"], item["status"], item["root_set"], item["backend"]) == (
            "accepted",
            "warning",
            "EMULATED",
            "EMULATED",
        )
        assert part["gput.checks"] == item["checks"]
        assert {"pass", "not-checked"} >= {check["status"] for check in item["checks"]}
    claims = read_result(found[0]["token"], bytes.fromhex(found[0]["signing_key"]), at=system_clock()).submodules["gpu"]
    assert claims["ear.veraison.annotated-evidence"]["measres"] == "success"


def test_they_are_signed_by_the_key_that_the_quote_covers(stage: Stage) -> None:
    path = f"/v1/sessions/{stage.sessions['done']}/keys"
    keys = stage.request("orchestrator", "GET", path, signed(stage.keys["owner"])).json()["items"]
    covered = {json.loads(base64.b64decode(key["runtime_data"]))["signing_key"] for key in keys}
    assert {item["signing_key"] for item in items(stage)} == covered


def test_the_waiting_session_has_none(stage: Stage) -> None:
    path = f"/v1/sessions/{stage.sessions['waiting']}/attestations"
    assert stage.request("orchestrator", "GET", path, signed(stage.keys[HOLDER])).json() == {"items": [], "next": None}


def test_the_command_line_shows_them(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    session, found = stage.sessions["done"], items(stage)
    attest.show_session(session, found, Format.TABLE)
    out = capsys.readouterr().out
    assert out.count("accepted, trust warning") == len(found)
    assert f"cvm:{HOLDER}: tdx-quote, root set EMULATED, life 1" in out
    attest.show_session(session, found, Format.JSON)
    assert json.loads(capsys.readouterr().out) == found


def test_it_shows_nothing_that_the_signature_does_not_bear_out(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    session, found = stage.sessions["done"], items(stage)

    def changed(**values: Any) -> list[dict[str, Any]]:
        return [{**copy.deepcopy(found[0]), **values}, *found[1:]]

    wrong = [
        changed(checks=found[0]["checks"][1:]), changed(subject="cvm:other"), changed(signing_key="00" * 32),
        changed(token=found[0]["token"][:-4] + "AAAA"), changed(signing_key="no key"), [{"subject": "gpu"}],
    ]  # fmt: skip
    # Each of these stands in the item for programs that read no token, and nobody signed it there.
    unsigned = {"life": 2, "at": 1, "verdict": "refused", "status": "affirming", "root_set": "NVIDIA", "backend": "HARDWARE",
                "kind": "tdx-quote"}  # fmt: skip
    wrong += [changed(**{name: value}) for name, value in unsigned.items()]
    for lie, form in product(wrong, (Format.TABLE, Format.JSON)):
        with pytest.raises(GputError):
            attest.show_session(session, lie, form)
    for name in unsigned:
        without = {key: value for key, value in found[0].items() if key != name}
        with pytest.raises(VerificationFailed, match=rf"shows a {name} of .* does not bear out"):
            attest.show_session(session, [without], Format.TABLE)
    assert capsys.readouterr().out == ""
    attest.show_session(session, changed(remark="what no token says"), Format.JSON)
    assert json.loads(capsys.readouterr().out) == found
    with pytest.raises(GputError):
        attest.show_session(stage.sessions["waiting"], found, Format.TABLE)


def test_the_attested_keys_are_verified_from_a_file(
    stage: Stage, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = f"/v1/sessions/{stage.sessions['done']}/keys"
    page = stage.request("orchestrator", "GET", path, signed(stage.keys["owner"])).content
    (tmp_path / "page.json").write_bytes(page)
    lines = [json.dumps(item) for item in json.loads(page)["items"]]
    (tmp_path / "keys.jsonl").write_text("\n".join(lines))
    for name in ("page.json", "keys.jsonl"):
        words = [
            "attest",
            "verify",
            str(tmp_path / name),
            "--trust",
            str(stage.world.folder / "trust"),
            "--format",
            "json",
        ]
        assert main([*words, "--allow-emulated"]) == 0, capsys.readouterr().err
        found = json.loads(capsys.readouterr().out)
        assert [one["verdict"] for one in found] == ["accepted"] * 3 * len(lines)  # the key, its VM, its GPU
        assert main(words) == 4
        assert "EMULATED" in capsys.readouterr().err
    item = json.loads(lines[0])
    item["gpu_evidence"] |= {"epoch": 99}
    (tmp_path / "forged.json").write_text(json.dumps(item))
    assert main(["attest", "verify", str(tmp_path / "forged.json"), *words[3:5], "--allow-emulated"]) == 4
    told = capsys.readouterr()
    assert "gpu-evidence-mismatch" in told.err
    assert "answers another challenge" in told.out
