"""Receipts hold only if every visit of a holder names the one dataset root that this holder signed when it approved."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from gput.approvals import signed_for
from gput.receipt_folder import read_session
from gput.receipts import verify
from shared.canonical import json_bytes, json_value
from shared.crypto.signing import PartyKey
from shared.errors import VerificationFailed
from tests.gput.gput_samples import Bundle, Saved
from tests.world.world_material import Material


def approval(bundle: Bundle, holder: str) -> dict[str, Any]:
    return next(item for item in bundle.value["approvals"] if item["holder"] == holder)


def signed_again(item: dict[str, Any], key: PartyKey, **changes: Any) -> dict[str, Any]:
    """The approval with some fields changed, signed by `key`."""
    says = {**json_value(base64.b64decode(item["document"])), **changes}
    document = json_bytes({name: value for name, value in says.items() if name != "profile" or value is not None})
    signature = base64.b64encode(key.sign("gput/approval", document)).decode()
    return {
        **item,
        "document": base64.b64encode(document).decode(),
        "signature": signature,
        "public_key": key.public.hex(),
    }


NOTHING = {"records": None, "record_bytes": None, "dataset_root": None, "profile": None}
"""What a decision that is no approval states of a dataset."""


def refused(bundle: Bundle, part: str, code: str) -> VerificationFailed:
    with pytest.raises(VerificationFailed) as found:
        verify(bundle.write())
    assert part in found.value.detail
    assert found.value.code == code
    return found.value


def test_the_roots_are_shown(saved: Saved, bundle: Bundle) -> None:
    found = verify(saved.folder)
    assert found.datasets == {item["holder"]: item["dataset_root"] for item in bundle.value["approvals"]}
    assert len(set(found.datasets.values())) == 3


@pytest.mark.parametrize("changes", [{"dataset_root": "d0" * 32}, {"records": 41}])
def test_a_visit_under_another_root_than_the_approved_one(
    bundle: Bundle, gput_material: Material, changes: dict[str, Any]
) -> None:
    """The holder itself signs, afterwards, for other data than the GPU was given."""
    item = approval(bundle, "city")
    item.update(signed_again(item, gput_material.keys["city"], **changes))
    assert "dataset" in refused(bundle, "leaf", "mismatch").detail


def test_a_holder_that_signed_for_two_datasets(bundle: Bundle, gput_material: Material) -> None:
    other = signed_again(approval(bundle, "city"), gput_material.keys["city"], dataset_root="d0" * 32)
    bundle.value["approvals"].append(other)
    refused(bundle, "approvals.jsonl: approval 3: city approved two datasets", "dataset-changed")
    bundle.value["approvals"][-1] = approval(bundle, "city")  # the same word twice is one word
    verify(bundle.write())


def test_a_visit_of_a_holder_that_never_approved(bundle: Bundle) -> None:
    bundle.value["approvals"].remove(approval(bundle, "north"))
    refused(bundle, "north never approved", "not-approved")


def test_a_veto_afterwards_takes_nothing_away(bundle: Bundle, gput_material: Material) -> None:
    veto = signed_again(approval(bundle, "city"), gput_material.keys["city"], decision="veto", **NOTHING)
    bundle.value["approvals"].append({**veto, "decision": "veto"})
    verify(bundle.write())


@pytest.mark.parametrize(("signed", "shown"), [("veto", "approve"), ("refuse", "approve"), ("approve", "veto")])
def test_a_decision_that_is_shown_as_another(bundle: Bundle, gput_material: Material, signed: str, shown: str) -> None:
    """The line's own word is nobody's: a refusal had counted as an approval."""
    changes = {"decision": signed} | ({} if signed == "approve" else NOTHING)
    said = signed_again(approval(bundle, "city"), gput_material.keys["city"], **changes)
    bundle.value["approvals"].append({**said, "decision": shown})
    error = refused(bundle, "approvals.jsonl: approval 3: city signed another decision", "mismatch")
    assert (error.expected, error.got) == (signed, shown)


def test_of_who_never_approved_no_key_is_shown(saved: Saved, bundle: Bundle, gput_material: Material) -> None:
    """A session that does not need everybody goes on without who refuses; that word is kept with the others."""
    refusal = signed_again(approval(bundle, "north"), gput_material.keys["north"], decision="refuse", **NOTHING)
    lines = [json_bytes({**refusal, "decision": "refuse", "public_key": None})]
    assert signed_for(read_session(saved.folder), lines).approved == {}
    with pytest.raises(VerificationFailed, match="approval 0: malformed"):
        signed_for(read_session(saved.folder), [json_bytes({**approval(bundle, "north"), "public_key": None})])


def test_an_approval_that_the_holder_did_not_sign(bundle: Bundle, gput_material: Material) -> None:
    item = approval(bundle, "city")
    good = dict(item)
    item.update(signed_again(good, gput_material.keys["north"]))
    refused(bundle, "approvals", "key-mismatch")
    item.update({**good, "signature": approval(bundle, "north")["signature"]})
    refused(bundle, "approvals", "bad-signature")
    item.update(signed_again(good, gput_material.keys["city"], session="s_aaaaaaaaaaaaaaaa"))
    refused(bundle, "approvals", "approval-mismatch")
