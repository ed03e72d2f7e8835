"""Law L10 where evidence is judged: a root's set must be one that counts, and emulation must be allowed here as well. Knows no format."""

from __future__ import annotations

from collections.abc import Collection

from shared.attestation.cpu_trust import EMULATED_MARK
from shared.errors import VerificationFailed


def check_set(root_set: str, roots: Collection[str], *, allow_emulated: bool, what: str, code: str) -> None:
    """Judge the set that a pinned root belongs to.

    Args:
        roots: sets that the agreed policy names.
        allow_emulated: this verifier's own switch; an EMULATED root needs both.
        what: the evidence, for people: "the quote".
        code: how the codes of this kind of evidence begin: "quote".

    Raises:
        VerificationFailed: `CODE-root-set`, `CODE-emulated`.
    """
    if root_set not in roots:
        raise VerificationFailed(
            f"{what} stands on a root of set {root_set}, which the agreed policy does not name",
            code=f"{code}-root-set",
            expected=", ".join(roots),
            got=root_set,
            remedy="name EMULATED in the policy (`gput attest`: --allow-emulated) only where nothing real is at stake"
            if root_set == EMULATED_MARK
            else "check that the evidence is of the maker that the policy names",
        )
    if root_set == EMULATED_MARK and not allow_emulated:
        raise VerificationFailed(
            f"{what} is EMULATED and this verifier's configuration does not allow that",
            code=f"{code}-emulated",
            expected="hardware",
            got=root_set,
            remedy="set allow_emulated only where nothing real is at stake",
        )
