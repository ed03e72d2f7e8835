"""A real bundle of receipts verifies; whatever is altered in it is found and named."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from gput.receipt_folder import LEAVES
from gput.receipts import save, verify
from shared.canonical import cbor_bytes
from shared.protocol.log_events import is_receipt
from tests.gput.gput_samples import Bundle, Saved
from tests.gput.receipts_world import flipped_hex, receipt_leaves, refused


def flipped(text: str, at: int) -> str:
    """Base64 with one bit of one byte changed."""
    raw = bytearray(base64.b64decode(text))
    raw[at % len(raw)] ^= 1
    return base64.b64encode(bytes(raw)).decode()


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
    other = cbor_bytes(["gput/log-event/1", bundle.value["session"], "restored", {"position": 0}])
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


def test_events_and_receipts_are_told_apart_by_their_bytes(saved: Saved) -> None:
    leaves = [json.loads(line) for line in (saved.folder / LEAVES).read_text().splitlines()]
    assert all(is_receipt(base64.b64decode(leaf["leaf"])) == (leaf["kind"] == "receipt") for leaf in leaves)
    assert not is_receipt(cbor_bytes({"kind": "restore"}))
