"""A real bundle of receipts verifies; whatever is altered in it is found and named."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cbor2
import pytest

from gput.__main__ import main
from gput.receipt_folder import KEYS, LEAVES, SESSION, SUMS, TRUST
from gput.receipts import is_receipt, save, verify
from shared.canonical import cbor_bytes, cbor_value
from shared.errors import BadRequest, GputError, VerificationFailed
from tests.gput.gput_samples import Bundle, Saved
from tests.world.world_material import Material, make_material


def refused(folder: Path, *parts: str) -> VerificationFailed:
    """Verification must fail and say where."""
    with pytest.raises(VerificationFailed) as found:
        verify(folder)
    assert any(part in found.value.detail for part in parts), found.value.detail
    return found.value


def flipped(text: str, at: int) -> str:
    """Base64 with one bit of one byte changed."""
    raw = bytearray(base64.b64decode(text))
    raw[at % len(raw)] ^= 1
    return base64.b64encode(bytes(raw)).decode()


def flipped_hex(text: str) -> str:
    return ("0" if text[0] != "0" else "1") + text[1:]


def receipt_leaves(bundle: Bundle) -> list[dict[str, Any]]:
    return [leaf for leaf in bundle.value["leaves"] if leaf["kind"] == "receipt"]


class Service:
    """An orchestrator's log as the client reads it: what was saved, and a leaf appended since its head was signed."""

    def __init__(self, bundle: Bundle) -> None:
        newer = {
            "index": len(bundle.value["leaves"]),
            "kind": "event",
            "leaf": base64.b64encode(cbor_bytes(["x"])).decode(),
        }
        self._views = {
            "log/head": bundle.value["head"], "log/leaves": [*bundle.value["leaves"], newer], "keys": bundle.value["keys"],
            "manifest": bundle.value["manifest"], "approvals": bundle.value["approvals"],
        }  # fmt: skip

    async def get(self, path: str) -> Any:
        return self._views[path.split("/", 2)[2]]

    async def items(self, path: str, size: int | None = None) -> Any:
        found = await self.get(path)
        return found if size is None else [item for item in found if item["index"] < size]


async def test_a_leaf_newer_than_the_signed_head_is_left_out_of_the_bundle(saved: Saved, tmp_path: Path) -> None:
    """After a restart the newest leaf may wait for its signature; what is signed verifies all the same."""
    service: Any = Service(Bundle(saved.folder))
    await save(service, saved.session, tmp_path / "again", saved.folder)
    assert verify(tmp_path / "again") == verify(saved.folder)


def test_the_real_bundle_holds(saved: Saved) -> None:
    found = verify(saved.folder)
    assert found.session == saved.session
    assert found.backends == ("EMULATED",)
    assert found.receipts == sum(found.holders.values()) == saved.view["visits_closed"]
    assert set(found.holders) == {holder["holder"] for holder in saved.view["holders"]}
    assert found.records == sum(visit["records"] for visit in saved.visits)
    assert (found.leaves, found.root) == (saved.view["log"]["size"], saved.view["log"]["root"])


def test_every_sampled_byte_of_a_leaf_counts(bundle: Bundle) -> None:
    for leaf in bundle.value["leaves"]:
        good = leaf["leaf"]
        length = len(base64.b64decode(good))
        for at in range(0, length, max(1, length // 12)):
            leaf["leaf"] = flipped(good, at)
            refused(bundle.write(), f"leaves.jsonl: leaf {leaf['index']}: ")
        leaf["leaf"] = good
    verify(bundle.write())


@pytest.mark.parametrize("which", [0, -1])
def test_a_dropped_leaf(bundle: Bundle, which: int) -> None:
    del bundle.value["leaves"][which]
    for index, leaf in enumerate(bundle.value["leaves"]):
        leaf["index"] = index
    where = "leaf 0: not what the signed log holds at this place" if which == 0 else "does not hold all leaves"
    assert refused(bundle.write(), where).code == "log-mismatch"


def test_a_repeated_leaf(bundle: Bundle) -> None:
    last = bundle.value["leaves"][-1]
    bundle.value["leaves"].append({**last, "index": last["index"] + 1})
    assert refused(bundle.write(), f"leaf {last['index'] + 1}: ").code == "log-mismatch"


def test_swapped_leaves(bundle: Bundle) -> None:
    first, second = receipt_leaves(bundle)[:2]
    first["leaf"], second["leaf"] = second["leaf"], first["leaf"]
    assert refused(bundle.write(), f"leaf {first['index']}: not what the signed log holds").code == "log-mismatch"


def test_a_leaf_under_another_number(bundle: Bundle) -> None:
    bundle.value["leaves"][1]["index"] = 0
    refused(bundle.write(), "leaf 1: its index is not what its bytes say")


def test_a_receipt_cannot_hide_as_an_event(bundle: Bundle) -> None:
    leaf = receipt_leaves(bundle)[0]
    leaf["kind"] = "event"
    refused(bundle.write(), f"leaf {leaf['index']}: its kind is not what its bytes say")


@pytest.mark.parametrize("change", ["dropped", "altered", "another's", "upper case", "no list"])
def test_a_changed_path(bundle: Bundle, change: str) -> None:
    leaf, other = bundle.value["leaves"][2], bundle.value["leaves"][3]
    path = leaf["path"]
    leaf["path"] = {
        "dropped": path[1:], "altered": [flipped_hex(path[0]), *path[1:]], "another's": other["path"],
        "upper case": [path[0].upper(), *path[1:]], "no list": "".join(path),
    }[change]  # fmt: skip
    refused(bundle.write(), "leaf 2: ")


def test_a_forged_event_is_named_by_its_own_place(bundle: Bundle) -> None:
    """An event has no signature of its own: the log's path tells which one it is."""
    other = cbor_bytes(["gput/log-event/1", bundle.value["session"], "restored", {}])
    for leaf in bundle.value["leaves"]:
        good = leaf["leaf"]
        leaf["leaf"], leaf["kind"], kind = base64.b64encode(other).decode(), "event", leaf["kind"]
        refused(bundle.write(), f"leaf {leaf['index']}: not what the signed log holds at this place")
        leaf["leaf"], leaf["kind"] = good, kind
    verify(bundle.write())


@pytest.mark.parametrize("field", ["root", "signature", "key", "size", "time"])
def test_a_changed_head(bundle: Bundle, field: str) -> None:
    head = bundle.value["head"]
    old = head[field]
    if isinstance(old, int):
        head[field] = old + 1
    else:
        head[field] = flipped(old, 3) if field == "signature" else flipped_hex(old)
    refused(bundle.write(), "session.json: log head: ")


@pytest.mark.parametrize("field", ["runtime_data", "signing_key"])
def test_a_changed_key_entry(bundle: Bundle, field: str) -> None:
    key = bundle.value["keys"][0]
    key[field] = flipped_hex(key[field]) if field == "signing_key" else flipped(key[field], 40)
    refused(bundle.write(), "key 0")


def strings(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths to every text of some length in a JSON value."""
    if isinstance(value, str):
        return [path] if len(value) > 20 else []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [found for key, child in items for found in strings(child, (*path, key))]


def spoil(value: Any, path: tuple[Any, ...]) -> None:
    for key in path[:-1]:
        value = value[key]
    text = value[path[-1]]
    at = len(text) // 2
    value[path[-1]] = text[:at] + ("A" if text[at] not in "Aa" else "B") + text[at + 1 :]


def test_every_text_of_the_evidence_counts(bundle: Bundle) -> None:
    good = json.dumps(bundle.value)
    paths = [p for part in ("evidence", "gpu_evidence") for p in strings(bundle.value["keys"][0][part], (part,))]
    assert len(paths) >= 5
    for path in paths:
        bundle.value = json.loads(good)
        spoil(bundle.value["keys"][0], path)
        refused(bundle.write(), "key 0")


def test_a_missing_key(bundle: Bundle) -> None:
    bundle.value["keys"] = []
    assert refused(bundle.write(), "log head").code == "unknown-key"


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
    refused(bundle.write(), "leaf")


def test_another_session(bundle: Bundle) -> None:
    bundle.value["session"] = "s_aaaaaaaaaaaaaaaa"
    refused(bundle.write(), "log head")


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


FILES = (SESSION, KEYS, LEAVES, SUMS, *TRUST)


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


def test_events_and_receipts_are_told_apart_by_their_bytes(saved: Saved) -> None:
    leaves = [json.loads(line) for line in (saved.folder / LEAVES).read_text().splitlines()]
    assert all(is_receipt(base64.b64decode(leaf["leaf"])) == (leaf["kind"] == "receipt") for leaf in leaves)
    assert not is_receipt(cbor_bytes({"kind": "restore"}))
