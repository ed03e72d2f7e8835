"""What a GPU states of its share of a visit's key (travel mode `direct`). Knows no signature."""

from __future__ import annotations

from typing import Literal

from shared.claims import Claim
from shared.claims.manifest import PartyName
from shared.claims.program import HexSha256
from shared.claims.receipt import Count
from shared.claims.visit import SessionId


class ShareStatement(Claim):
    """Payload (deterministic CBOR) of a COSE_Sign1 by the device's statement key: this X25519 share (32 bytes, hex) is mine, for this epoch
    of this session, and for this holder alone."""

    profile: Literal["gput/share/1"] = "gput/share/1"
    device: str
    boot_counter: Count
    life: Count
    session: SessionId
    epoch: Count
    holder: PartyName
    share: HexSha256
