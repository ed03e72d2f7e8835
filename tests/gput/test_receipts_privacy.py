"""What receipts say of privacy is computed again: a changed number, another noise or a second spending is named."""

from __future__ import annotations

from typing import Any

import cbor2
import pytest

from gput.receipt_chain import check_spent_once, spent_by_holder
from gput.receipt_folder import LEAVES, parse_line, read_lines
from gput.receipt_leaves import HeldReceipt
from gput.receipt_privacy import check_privacy
from shared.claims.accountant import spent
from shared.claims.manifest import Manifest
from shared.claims.privacy import Privacy, PrivacySpent
from shared.claims.receipt import DeviceStatement, Receipt
from shared.errors import VerificationFailed
from shared.protocol.log_events import is_receipt
from tests.gput.gput_samples import Saved
from tests.world.world_material import HOLDERS, RECORDS, ROUNDS, Material

PRIVACY = Privacy(max_grad_norm=1.0, noise_multiplier=2.0, delta=1e-5)
Pair = tuple[Receipt, DeviceStatement]


@pytest.fixture
def agreed(gput_material: Material) -> Manifest:
    return gput_material.manifest(privacy=PRIVACY)


@pytest.fixture
def receipts(saved: Saved, agreed: Manifest) -> dict[int, Pair]:
    """The saved session's receipts, as they were if it had been private; signatures are checked before these checks."""
    import base64

    found: dict[int, Pair] = {}
    for number, line in enumerate(read_lines(saved.folder, LEAVES)):
        leaf = base64.b64decode(parse_line(line)["leaf"])
        if is_receipt(leaf):
            receipt = Receipt.model_validate(cbor2.loads(cbor2.loads(leaf).value[2]))
            statement = DeviceStatement.model_validate(cbor2.loads(cbor2.loads(receipt.statement).value[2]))
            told = spent(agreed, receipt.holder, receipt.round, RECORDS)
            found[number] = (
                receipt.model_copy(update={"privacy_spent": told}), statement.model_copy(update={"privacy": PRIVACY}),
            )  # fmt: skip
    return found


def test_what_is_right_passes(receipts: dict[int, Pair], agreed: Manifest) -> None:
    assert len(receipts) == len(HOLDERS) * ROUNDS
    for receipt, statement in receipts.values():
        check_privacy(receipt, statement, agreed, RECORDS)
    kept = {leaf: HeldReceipt.of(*pair) for leaf, pair in receipts.items()}
    check_spent_once(kept, agreed, LEAVES)
    total = spent(agreed, "city", ROUNDS, RECORDS)
    assert total is not None
    assert spent_by_holder(kept) == dict.fromkeys(HOLDERS, total.epsilon)


FALSE: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "a smaller number": ({"privacy_spent": PrivacySpent(epsilon=1.5, delta=1e-5)}, {}, "privacy spent differs"),
    "no number": ({"privacy_spent": None}, {}, "privacy spent differs"),
    "another delta": ({"privacy_spent": PrivacySpent(epsilon=1.9931, delta=1e-3)}, {}, "privacy spent differs"),
    "an earlier round": ({"round": 9}, {}, "round differs"),
    "no noise": ({}, {"privacy": None}, "privacy differs"),
    "less noise": ({}, {"privacy": PRIVACY.model_copy(update={"noise_multiplier": 1.0})}, "privacy differs"),
    "a looser norm": ({}, {"privacy": PRIVACY.model_copy(update={"max_grad_norm": 2.0})}, "privacy differs"),
}


@pytest.mark.parametrize("name", FALSE)
def test_what_is_not_is_named(name: str, receipts: dict[int, Pair], agreed: Manifest) -> None:
    in_receipt, in_statement, says = FALSE[name]
    receipt, statement = next(iter(receipts.values()))
    wrong = receipt.model_copy(update=in_receipt), statement.model_copy(update=in_statement)
    with pytest.raises(VerificationFailed, match=says) as refused:
        check_privacy(*wrong, agreed, RECORDS)
    assert refused.value.expected is not None
    assert refused.value.got is not None


def test_privacy_that_nobody_agreed_is_named_as_well(receipts: dict[int, Pair], gput_material: Material) -> None:
    receipt, statement = next(iter(receipts.values()))
    with pytest.raises(VerificationFailed, match="privacy differs"):
        check_privacy(receipt, statement, gput_material.manifest(), RECORDS)


def test_a_stop_trained_on_twice_with_other_noise_is_named_by_its_leaf(
    receipts: dict[int, Pair], agreed: Manifest
) -> None:
    number, (receipt, statement) = next(iter(receipts.items()))
    kept = {leaf: HeldReceipt.of(*pair) for leaf, pair in receipts.items()}
    again = {**kept, 99: HeldReceipt.of(receipt, statement)}
    check_spent_once(again, agreed, LEAVES)  # the same computation after a reset: the same noise
    again[99] = again[99]._replace(model_before="ab" * 32)
    with pytest.raises(VerificationFailed, match="leaf 99") as refused:
        check_spent_once(again, agreed, LEAVES)
    assert refused.value.code == "privacy-spent-twice"
    check_spent_once(again, agreed.model_copy(update={"privacy": None}), LEAVES)
    assert number != 99
