"""The GPU's X25519 shares, one an epoch, for one holder each. Knows no memory, no record and no statement's signature."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from shared.claims.visit import Grant
from shared.crypto.shares import Share, direct_key
from shared.errors import ProtocolViolation


class Shares:
    """Drawn and not yet used. A share dies with its epoch."""

    def __init__(self) -> None:
        self._drawn: dict[int, tuple[str, Share]] = {}

    def draw(self, epoch: int, holder: str, entropy: Callable[[int], bytes]) -> bytes:
        """The public share (32 bytes) of an epoch.

        Raises:
            ProtocolViolation `share-drawn`: the epoch has one.
        """
        if epoch in self._drawn:
            raise ProtocolViolation(f"epoch {epoch} has its share", code="share-drawn")
        share = Share(entropy)
        self._drawn[epoch] = holder, share
        return share.public

    def agree(self, grant: Grant, visit_key: bytes) -> bytes:
        """The traffic key of a grant that names this epoch's share and its holder's.

        Raises:
            ProtocolViolation `share-swapped`: it names another than was drawn for this epoch and holder (attack V25); `share-used`.
            VerificationFailed `bad-share`.
        """
        holder, share = self._drawn.get(grant.epoch, ("", None))
        if share is None or grant.shares is None or (holder, share.public.hex()) != (grant.holder, grant.shares.gpu):
            raise ProtocolViolation("the grant names another share than the GPU drew for it", code="share-swapped")
        return direct_key(visit_key, share.agree(bytes.fromhex(grant.shares.holder)), grant)

    def forget(self, epochs: Iterable[int]) -> None:
        """Their shares agree with nobody any more."""
        for epoch in epochs:
            self._drawn.pop(epoch, None)
