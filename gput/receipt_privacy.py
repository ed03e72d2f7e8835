"""What a receipt says of privacy, computed again from the manifest, the approvals and the visit. Knows no signature and no file."""

from __future__ import annotations

from shared.claims.accountant import spent
from shared.claims.manifest import Manifest
from shared.claims.receipt import DeviceStatement, Receipt
from shared.errors import VerificationFailed
from shared.protocol.stops import round_of


def check_privacy(receipt: Receipt, statement: DeviceStatement, manifest: Manifest, records: int) -> None:
    """One visit: the GPU trained as privately as the manifest says, and the receipt states what the plan has spent with it.

    Raises:
        VerificationFailed: naming the field, with what it should be.
    """
    round_number = round_of(manifest, receipt.index)
    expected = {
        "round": (round_number, receipt.round),
        "privacy": (manifest.privacy, statement.privacy),
        "privacy spent": (spent(manifest, receipt.holder, round_number, records), receipt.privacy_spent),
    }
    for name, (should, says) in expected.items():
        if should != says:
            raise VerificationFailed(f"{name} differs", code="mismatch", expected=str(should), got=str(says))
