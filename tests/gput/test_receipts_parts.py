"""Receipts with whole parts exchanged, cut or missing: the manifest, the trust, the session, a file, a member."""

from __future__ import annotations

import base64
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cbor2
import pytest

from gpu_agent.unit import GpuUnit
from gput.__main__ import main
from gput.approvals import signed_for
from gput.receipt_folder import (
    APPROVALS,
    KEYS,
    LEAVES,
    SESSION,
    SUMS,
    TRUST,
    check_as_saved,
    read_lines,
    read_session,
    write,
)
from gput.receipt_keys import believed_keys
from gput.receipts import save, verify
from shared.canonical import cbor_bytes, cbor_value, json_bytes, sha256
from shared.errors import BadRequest, GputError, VerificationFailed
from tests.gput.gput_samples import Bundle
from tests.gput.receipts_world import flipped_hex, receipt_leaves, refused
from tests.world.world import World
from tests.world.world_material import Material, make_material


@pytest.fixture(scope="module")
def strangers(tmp_path_factory: pytest.TempPathFactory) -> Material:
    """Another installation, with roots of its own."""
    return make_material(tmp_path_factory.mktemp("strangers") / "installation")


@pytest.mark.parametrize("name", ["gpu-roots.pem", "rim-roots.pem", "cpu-roots.pem"])
def test_other_trust_roots(bundle: Bundle, strangers: Material, name: str) -> None:
    (bundle.folder / name).write_bytes((strangers.folder / "trust" / name).read_bytes())
    refused(bundle.folder, f"{name} was altered")
    refused(bundle.write(), "keys.jsonl: key 0: ")


def test_other_reference_values(bundle: Bundle) -> None:
    path = bundle.folder / "reference.json"
    path.write_text(re.sub(r'"([0-9a-f]{96})"', lambda found: f'"{flipped_hex(found[1])}"', path.read_text()))
    refused(bundle.folder, "reference.json was altered")
    refused(bundle.write(), "keys.jsonl: key 0: ")


@pytest.mark.parametrize("kind", ["DRIVER", "VBIOS"])
def test_other_gpu_reference_values(bundle: Bundle, kind: str) -> None:
    (path,) = bundle.folder.glob(f"rim/NV_GPU_{kind}_*.xml")
    path.write_bytes(path.read_bytes().replace(b'active="False"', b'active="True"', 1))
    assert refused(bundle.write(), "key 0").code == "gpu-rim-signature"
    path.unlink()
    assert refused(bundle.write(), "key 0").code == "gpu-rim-missing"


def test_another_manifest(bundle: Bundle) -> None:
    manifest = json.loads(base64.b64decode(bundle.value["manifest"]["document"]))
    manifest["rounds"] += 1
    bundle.value["manifest"]["document"] = base64.b64encode(json.dumps(manifest).encode()).decode()
    assert refused(bundle.write(), "approvals").code == "approval-mismatch"
    bundle.value["approvals"] = []
    refused(bundle.write(), "keys.jsonl: key 0: the quote is of another manifest")


def test_another_session(bundle: Bundle) -> None:
    bundle.value["session"] = "s_aaaaaaaaaaaaaaaa"
    refused(bundle.write(), "approvals")
    bundle.value["approvals"] = []
    refused(bundle.write(), "keys.jsonl: key 0: the quote is of another session")
    bundle.value["keys"] = []
    refused(bundle.write(), "log head")


async def test_a_key_of_another_session(gput_material: Material, gput_unit: GpuUnit, tmp_path: Path) -> None:
    """The same orchestrator's, on the same GPU, and attested for other holders' eyes: it was believed of this session too."""
    async with World(tmp_path / "world", gput_material, gput_unit, holders=("city",)) as world:
        await world.enrol()
        for name in ("one", "other"):
            manifest = world.material.manifest(holders=("city",), rounds=1, name=name)
            session = str((await world.owner.submit(manifest))["id"])
            await world.completed(session)
            await save(world.owner, session, tmp_path / name, world.folder / "trust")
    one, other = Bundle(tmp_path / "one"), Bundle(tmp_path / "other")
    own = len(one.value["keys"])
    verify(one.folder)
    one.value["keys"] += other.value["keys"]
    assert refused(one.write(), f"keys.jsonl: key {own}: the quote is of another session").code == "mismatch"


@pytest.mark.parametrize(
    ("name", "other"), [("role", "holder"), ("session", "s_aaaaaaaaaaaaaaaa"), ("manifest", "0" * 64)]
)
def test_a_key_is_held_against_the_folders_session(bundle: Bundle, name: str, other: str) -> None:
    runtime = json.loads(base64.b64decode(bundle.value["keys"][1]["runtime_data"]))
    bundle.value["keys"][1]["runtime_data"] = base64.b64encode(json_bytes(runtime | {name: other})).decode()
    refused(bundle.write(), f"keys.jsonl: key 1: the quote is of another {name}")


def test_the_statement_of_another_visit(bundle: Bundle) -> None:
    """The device's signature holds, and it speaks of another visit: the orchestrator's signature does not cover that."""
    ours, theirs = (cbor_value(base64.b64decode(leaf["leaf"])) for leaf in receipt_leaves(bundle)[:2])
    receipt, other = cbor_value(ours.value[2]), cbor_value(theirs.value[2])
    receipt["statement"] = other["statement"]
    protected, unprotected, _, signature = ours.value
    message = cbor2.CBORTag(ours.tag, [protected, unprotected, cbor_bytes(receipt), signature])
    leaf = receipt_leaves(bundle)[0]
    leaf["leaf"] = base64.b64encode(cbor_bytes(message)).decode()
    refused(bundle.write(), f"leaf {leaf['index']}: the signature")


FILES = (SESSION, APPROVALS, KEYS, LEAVES, SUMS, *TRUST)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.99])
@pytest.mark.parametrize("name", FILES)
def test_a_truncated_file(bundle: Bundle, name: str, share: float) -> None:
    path = bundle.folder / name
    raw = path.read_bytes()
    path.write_bytes(raw[: int(len(raw) * share)])
    refused(bundle.folder, name)


@pytest.mark.parametrize("part", ["session", "head", "manifest"])
def test_a_missing_part(bundle: Bundle, part: str) -> None:
    bundle.value[part] = None
    with pytest.raises(BadRequest, match="incomplete"):
        verify(bundle.write())


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file(bundle: Bundle, name: str) -> None:
    (bundle.folder / name).unlink()
    with pytest.raises(BadRequest, match=f"holds no {name}") as found:
        verify(bundle.folder)
    assert found.value.code == "no-receipts"


WRONG: list[tuple[str, Callable[[dict[str, Any]], Any]]] = [
    ("leaf a number", lambda b: b["leaves"].__setitem__(0, 7)),
    ("leaf no base64", lambda b: b["leaves"][0].__setitem__("leaf", "?!")),
    ("leaf nothing", lambda b: b["leaves"][0].__setitem__("leaf", None)),
    ("key a list", lambda b: b["keys"].__setitem__(0, [])),
    ("evidence absent", lambda b: b["keys"][0].pop("evidence")),
    ("head without root", lambda b: b["head"].pop("root")),
    ("head size a text", lambda b: b["head"].__setitem__("size", "many")),
    ("manifest a number", lambda b: b["manifest"].__setitem__("document", 5)),
    ("manifest no JSON", lambda b: b["manifest"].__setitem__("document", "AAAA")),
    ("manifest without policy", lambda b: b["manifest"].__setitem__("document", base64.b64encode(b"{}").decode())),
    ("manifest a list", lambda b: b["manifest"].__setitem__("document", base64.b64encode(b"[]").decode())),
]


@pytest.mark.parametrize("alter", [alter for _, alter in WRONG], ids=[name for name, _ in WRONG])
def test_nonsense_is_an_error_of_the_family(bundle: Bundle, alter: Callable[[dict[str, Any]], Any]) -> None:
    alter(bundle.value)
    with pytest.raises(GputError) as found:
        verify(bundle.write())
    assert found.value.exit_code in (2, 4)


def test_exit_codes_of_the_command(bundle: Bundle, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["receipts", "verify", str(bundle.folder), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["result"] == "all hold"
    assert main(["receipts", "show", str(bundle.folder), "--format", "jsonl"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(rows) == len(receipt_leaves(bundle))
    assert all(row["holder"] and row["scrubbed_bytes"] for row in rows)
    del bundle.value["leaves"][0]
    assert main(["receipts", "verify", str(bundle.write())]) == 4
    told = capsys.readouterr()
    assert not told.out
    assert len(told.err.splitlines()) == 1
    for verb in ("verify", "show"):
        assert main(["receipts", verb, str(tmp_path / "nothing")]) == 2
        assert "gput session receipts" in capsys.readouterr().err


def _saved_again(bundle: Bundle, tmp_path: Path, **more: bytes) -> Path:
    """The receipts, saved with a trust folder that has more files."""
    trust = tmp_path / "trust"
    shutil.copytree(bundle.folder, trust, dirs_exist_ok=True)
    for name, content in more.items():
        (trust / name).parent.mkdir(parents=True, exist_ok=True)
        (trust / name).write_bytes(content)
    target = tmp_path / "saved"
    write(target, bundle.value, trust)
    return target


def test_all_of_a_trust_folder_is_saved_with_receipts(bundle: Bundle, tmp_path: Path) -> None:
    """Also a service's answers in folders of their own, and lists: what verified here would not elsewhere, or too much would."""
    more = (
        "collateral/pccs/pck_crl_platform.crl",
        "snp-crls/milan.crl",
        "ocsp/answer (1).der",
        "rim/a driver+1.xml.txt",
    )
    target = _saved_again(bundle, tmp_path, **dict.fromkeys(more, b"x"))
    assert all((target / name).read_bytes() == b"x" for name in more)
    assert not check_as_saved(target)
    (target / more[2]).write_bytes(b"y")
    with pytest.raises(VerificationFailed, match=re.escape(more[2])):
        check_as_saved(target)


def test_trust_that_was_withdrawn_is_not_saved_once_more(bundle: Bundle, tmp_path: Path) -> None:
    _saved_again(bundle, tmp_path, **{"ocsp/old.der": b"x"})
    (tmp_path / "trust" / "ocsp" / "old.der").unlink()
    target = _saved_again(bundle, tmp_path)
    assert not (target / "ocsp" / "old.der").exists()
    assert not check_as_saved(target)


@pytest.mark.parametrize("name", ["a\nb.der", "a\\b.der", "\udcff.der"])
def test_a_name_that_no_list_of_sums_can_hold_is_refused_when_it_is_saved(
    bundle: Bundle, tmp_path: Path, name: str
) -> None:
    """Later it looked as if somebody had altered the list."""
    with pytest.raises(BadRequest) as refusal:
        _saved_again(bundle, tmp_path, **{f"ocsp/{name}": b"x"})
    assert refusal.value.code == "bad-file-name"


@pytest.mark.parametrize(
    "line",
    [
        "  /dev/zero",
        "  ../session.json",
        "  rim/../../outside.json",
        "  collateral/a/b/c.json",
        "  ./session.json",
        "  ..",
    ],
)
def test_a_list_of_sums_that_names_what_is_not_of_the_folder(bundle: Bundle, line: str) -> None:
    """It would be read, to its end if it has one."""
    _say_too(bundle.folder, "0" * 64 + line)
    refused(bundle.folder, SUMS)


def test_a_list_of_sums_with_a_line_of_a_number_without_end(bundle: Bundle) -> None:
    _say_too(bundle.folder, f"# {'0' * 64}  {KEYS} line {'1' * 5000}")
    refused(bundle.folder, SUMS)


@pytest.mark.parametrize("name", [SESSION, KEYS, LEAVES, SUMS])
def test_what_is_no_file_is_not_read(bundle: Bundle, name: str) -> None:
    (bundle.folder / name).unlink()
    (bundle.folder / name).symlink_to("/dev/zero")
    with pytest.raises(BadRequest, match=f"holds no {name}"):
        verify(bundle.folder)


def _say_too(folder: Path, line: str) -> None:
    """Put a line into the list of sums, whose own sum is right."""
    lines = [*(folder / SUMS).read_text().splitlines()[:-1], line]
    body = "".join(f"{one}\n" for one in lines)
    (folder / SUMS).write_text(f"{body}# the lines above: {sha256(body.encode()).hex()}\n")


def test_no_key_is_older_than_its_session(bundle: Bundle) -> None:
    """Its evidence is judged by the time that it names itself: a stolen machine's key names one before the machine was revoked."""
    folder = bundle.write()
    book = signed_for(read_session(folder), read_lines(folder, APPROVALS))
    assert len(book.approved_at) == len(book.approved)
    assert believed_keys(folder, book).signers
    later = {holder: at + 2 * 60 + 1 for holder, at in book.approved_at.items()}
    book.approved_at.update(dict.fromkeys(list(later)[:1], 0.0))
    assert believed_keys(folder, book).signers, "one whose clock is slow"
    book.approved_at.update(later)
    with pytest.raises(VerificationFailed, match="key 0: evidence names a time before its session") as caught:
        believed_keys(folder, book)
    assert caught.value.code == "introduction-backdated"
