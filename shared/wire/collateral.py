"""What a collateral service answers, before anybody believes it. Knows no form and no signature."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

Authority = Literal["platform", "processor"]
"""Which of a CPU maker's two certificate authorities issued a machine's certificate."""


@dataclass(frozen=True)
class CollateralAnswers:
    """Bodies as received, issuer chains as header text (URL-encoded or PEM), revocation lists in DER."""

    tcb_info: bytes
    tcb_chain: str
    qe_identity: bytes
    qe_chain: str
    pck_crl: bytes
    pck_crl_chain: str
    root_ca_crl: bytes


class CollateralSource(Protocol):
    """Brings collateral from a service of one's own. There is none by default, and no address is built in."""

    async def fetch(self, fmspc: str, authority: Authority) -> CollateralAnswers:
        """Of one FMSPC, hex. Raises: Unavailable, with what stood in the way."""
        ...
