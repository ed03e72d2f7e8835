"""What receipts say of privacy, computed again from the manifest, the approvals and the visits. Knows no signature and no file."""

from __future__ import annotations

from collections.abc import Mapping

from shared.claims.accountant import spent
from shared.claims.manifest import Manifest
from shared.claims.receipt import DeviceStatement, Receipt
from shared.errors import VerificationFailed

Checked = Mapping[int, tuple[Receipt, DeviceStatement]]
"""Receipt and device statement by the number of their leaf, in the log's order."""


def check_privacy(receipt: Receipt, statement: DeviceStatement, manifest: Manifest, records: int) -> None:
    """One visit: the GPU trained as privately as the manifest says, and the receipt states what the plan has spent with it.

    Raises:
        VerificationFailed: naming the field, with what it should be.
    """
    round_number = (receipt.index - 1) // len(manifest.roster) + 1
    expected = {
        "round": (round_number, receipt.round),
        "privacy": (manifest.privacy, statement.privacy),
        "privacy spent": (spent(manifest, receipt.holder, round_number, records), receipt.privacy_spent),
    }
    for name, (should, says) in expected.items():
        if should != says:
            raise VerificationFailed(f"{name} differs", code="mismatch", expected=str(should), got=str(says))


def check_spent_once(receipts: Checked, manifest: Manifest, where: str) -> None:
    """No stop was trained on twice with different noise: then what the plan spends is the most that was spent.

    A repeat after a reset of the GPU begins with the same model, draws the same noise, and tells nothing new.

    Raises:
        VerificationFailed: naming the leaf.
    """
    began: dict[int, tuple[str, int]] = {}
    for leaf, (receipt, statement) in receipts.items():
        start = (statement.model_before, statement.first_step)
        if manifest.privacy is not None and began.setdefault(receipt.index, start) != start:
            raise VerificationFailed(
                f"{where}: leaf {leaf}: the records of visit {receipt.index} took part twice, with other noise",
                code="privacy-spent-twice",
            )


def spent_by_holder(receipts: Checked) -> dict[str, float]:
    """Epsilon that each visited holder's records have spent, as its last receipt says; empty without privacy."""
    return {
        receipt.holder: receipt.privacy_spent.epsilon
        for receipt, _ in sorted(receipts.values(), key=lambda pair: pair[0].round)
        if receipt.privacy_spent is not None
    }
