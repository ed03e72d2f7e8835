"""Attack V25 at the holder: an offer whose shares are not its own and the attested GPU's is refused before any key is agreed."""

from __future__ import annotations

import os
from typing import Any

import pytest

from data_holder.protocol.shares import check_shares
from data_holder.trust import AttestedGpu
from shared.canonical import cbor_bytes
from shared.claims.share import ShareStatement
from shared.claims.visit import CursorRange, Grant, Shares
from shared.crypto import ecc
from shared.crypto.cose import p384_point, sign1
from shared.crypto.shares import Share
from shared.crypto.signing import PartyKey
from shared.errors import GputError, VerificationFailed
from shared.names import Backend, TravelMode
from shared.wire.visit import OfferDocument
from tests.data_holder.holder_world import b64

SESSION, DEVICE = "s_0123456789abcdef", "0123456789abcdef"
KEY, OTHER_KEY, OLDER_KEY = PartyKey.generate(), PartyKey.generate(), ecc.private_key(os.urandom)
OWN, THEIRS, PLATFORMS = (Share(os.urandom).public for _ in range(3))
GPU = AttestedGpu(DEVICE, Backend.EMULATED, KEY.public)


def statement(key: Any = KEY, **changes: Any) -> str:
    fields: dict[str, Any] = {
        "device": DEVICE, "boot_counter": 1, "life": 1, "session": SESSION, "epoch": 4, "holder": "north", "share": THEIRS.hex(),
    }  # fmt: skip
    return b64(sign1(cbor_bytes(ShareStatement(**(fields | changes)).model_dump()), key, kid=b"k"))


def document(shares: Shares | None, gpu_share: str) -> OfferDocument:
    grant = Grant(
        session=SESSION, visit="v_0123456789abcdef", life=1, epoch=4, holder="north", port="holder-north", region=2,
        byte_budget=4096, cursor=CursorRange(start=0, count=8), dataset_root="d0" * 32, dataset_records=8, record_bytes=16,
        chunk_bytes=128, recipient="ab" * 32, expires_at=1, mode=TravelMode.DIRECT, shares=shares,
    )  # fmt: skip
    return OfferDocument.model_construct(grant=grant, gpu_share=gpu_share)


RIGHT = Shares(holder=OWN.hex(), gpu=THEIRS.hex())


def test_both_shares_are_as_signed() -> None:
    check_shares(document(RIGHT, statement()), OWN, GPU)
    check_shares(document(None, ""), None, GPU)
    older = AttestedGpu(DEVICE, Backend.EMULATED, p384_point(OLDER_KEY.public_key()))
    check_shares(document(RIGHT, statement(OLDER_KEY)), OWN, older)
    for key, gpu in ((OLDER_KEY, GPU), (KEY, older)):
        with pytest.raises(VerificationFailed, match="algorithm"):
            check_shares(document(RIGHT, statement(key)), OWN, gpu)


FAULTS: dict[str, tuple[str, Shares | None, str, bytes | None]] = {
    "the platform's share for the holder's": (
        "share-swapped", Shares(holder=PLATFORMS.hex(), gpu=THEIRS.hex()), statement(), OWN,
    ),
    "the platform's share for the GPU's": ("share-swapped", Shares(holder=OWN.hex(), gpu=PLATFORMS.hex()), statement(), OWN),
    "signed by another key": ("bad-signature", RIGHT, statement(OTHER_KEY), OWN),
    "of another device": ("share-mismatch", RIGHT, statement(device="f" * 16), OWN),
    "of another epoch": ("share-mismatch", RIGHT, statement(epoch=3), OWN),
    "of another life": ("share-mismatch", RIGHT, statement(life=2), OWN),
    "of another session": ("share-mismatch", RIGHT, statement(session="s_" + "f" * 16), OWN),
    "for another holder": ("share-mismatch", RIGHT, statement(holder="south"), OWN),
    "no statement": ("bad-request", RIGHT, "", OWN),
    "no shares where they are agreed": ("shares-not-planned", None, "", OWN),
    "shares where none are agreed": ("shares-not-planned", RIGHT, statement(), None),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_share_that_is_not_the_right_one_is_refused(fault: str) -> None:
    code, shares, gpu_share, own = FAULTS[fault]
    with pytest.raises(GputError) as caught:
        check_shares(document(shares, gpu_share), own, GPU)
    if code in ("bad-signature", "bad-request"):
        assert caught.value.code not in ("share-swapped", "share-mismatch", "shares-not-planned")
    else:
        assert caught.value.code == code


def test_a_gpu_without_a_statement_key_agrees_nothing() -> None:
    with pytest.raises(GputError) as caught:
        check_shares(document(RIGHT, statement()), OWN, AttestedGpu(DEVICE, Backend.HARDWARE, b""))
    assert caught.value.code == "no-statement-key"
