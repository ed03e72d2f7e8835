"""Trustworthiness vectors (draft-ietf-rats-ar4si): what an examination's checks say of identity, code, hardware. Knows no token, no format.

Numbers and tiers are the draft's: 2 to 31 affirming, 32 to 95 warning, 96 to 127 contraindicated, 99 broken cryptography, 0 no claim.
Negative numbers are for private use; ours is -33, a warning: genuinely EMULATED, which must never read as genuine hardware (law L10).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import Final

from shared.attestation.results import Check, CheckStatus, Examination

AFFIRMED, APPROVED_BOOT, NO_CLAIM = 2, 3, 0
WARNED, UNRECOGNISED_CODE, CONTRAINDICATED, UNRECOGNISED, BROKEN = 32, 33, 96, 97, 99
EMULATED: Final = -33
Tolerated = Collection[tuple[str, CheckStatus]]


class Tier(StrEnum):
    """How far a claim, or a whole piece of evidence, is trusted."""

    NONE = "none"
    AFFIRMING = "affirming"
    WARNING = "warning"
    CONTRAINDICATED = "contraindicated"


CLAIMS: Final = (
    "instance-identity", "configuration", "executables", "file-system", "hardware", "runtime-opaque", "storage-opaque", "sourced-data",
)  # fmt: skip
"""All of them; those about which these kinds of evidence say nothing (files, storage, sourced data) are never made."""
_HARDWARE, _CODE, _SETTINGS, _INSTANCE, _MEMORY = (
    "hardware", "executables", "configuration", "instance-identity", "runtime-opaque",
)  # fmt: skip
_GOOD: Final = {_HARDWARE: AFFIRMED, _CODE: APPROVED_BOOT, _SETTINGS: AFFIRMED, _INSTANCE: AFFIRMED}
_ESSENTIAL: Final = {_CODE: "measurements"}
"""Without this check the claim's others affirm nothing: a log that replays says what ran, not that it is known."""
_RIM_CHECKS: Final = {
    "rim": (_CODE, UNRECOGNISED_CODE), "rim-version": (_CODE, UNRECOGNISED_CODE), "rim-chain": (_CODE, BROKEN),
    "rim-signature": (_CODE, BROKEN), "rim-time": (_CODE, CONTRAINDICATED), "rim-ocsp": (_CODE, CONTRAINDICATED),
}  # fmt: skip
PLACES: Final[Mapping[str, tuple[str, int]]] = {
    # every family
    "layout": (_HARDWARE, BROKEN), "signature": (_HARDWARE, BROKEN), "root-set": (_HARDWARE, UNRECOGNISED),
    "measurements": (_CODE, UNRECOGNISED_CODE), "certificate-chain": (_HARDWARE, BROKEN),
    "revocation": (_HARDWARE, CONTRAINDICATED), "report-data": (_HARDWARE, BROKEN), "machine": (_INSTANCE, UNRECOGNISED),
    # GPU
    "certificates": (_HARDWARE, BROKEN), "root": (_HARDWARE, UNRECOGNISED), "links": (_HARDWARE, BROKEN),
    "device-id": (_HARDWARE, BROKEN), "nonce": (_HARDWARE, BROKEN), "device-type": (_HARDWARE, UNRECOGNISED),
    "certificate-time": (_HARDWARE, CONTRAINDICATED), "ocsp": (_HARDWARE, CONTRAINDICATED),
    "firmware-id": (_CODE, CONTRAINDICATED), "rim-indices": (_CODE, CONTRAINDICATED),
    "agreed-measurements": (_CODE, UNRECOGNISED_CODE), "feature-flag": (_SETTINGS, CONTRAINDICATED),
    "device": (_INSTANCE, UNRECOGNISED),
    **{f"{kind}-{name}": about for kind in ("driver", "vbios") for name, about in _RIM_CHECKS.items()},
    # TDX
    "collateral": (_HARDWARE, BROKEN), "collateral-time": (_HARDWARE, CONTRAINDICATED),
    "collateral-rollback": (_HARDWARE, CONTRAINDICATED), "qe-report": (_HARDWARE, BROKEN),
    "qe-identity": (_HARDWARE, UNRECOGNISED), "quote-signature": (_HARDWARE, BROKEN),
    "tdx-module": (_HARDWARE, UNRECOGNISED), "tcb-status": (_HARDWARE, CONTRAINDICATED),
    "engine": (_HARDWARE, BROKEN), "td-attributes": (_SETTINGS, CONTRAINDICATED), "xfam": (_SETTINGS, CONTRAINDICATED),
    "service-td": (_SETTINGS, CONTRAINDICATED), "platform-configuration": (_SETTINGS, CONTRAINDICATED),
    "event-log": (_CODE, BROKEN),
    # SEV-SNP
    "leaf": (_HARDWARE, BROKEN), "validity": (_HARDWARE, CONTRAINDICATED), "signing-key": (_HARDWARE, BROKEN),
    "tcb": (_HARDWARE, BROKEN), "chip-id": (_HARDWARE, BROKEN), "product": (_HARDWARE, UNRECOGNISED),
    "minimum-tcb": (_HARDWARE, CONTRAINDICATED), "endorser": (_HARDWARE, UNRECOGNISED),
    "debug": (_SETTINGS, CONTRAINDICATED), "guest-policy": (_SETTINGS, CONTRAINDICATED),
    "vmpl": (_SETTINGS, CONTRAINDICATED), "identity-keys": (_CODE, UNRECOGNISED_CODE),
}  # fmt: skip
"""Check -> the claim that it is about, and the number of its failure."""
_OPAQUE: Final = {"td-attributes": "cvm-debug", "debug": "cvm-debug"}
"""Checks by which a CPU says that its host cannot read the guest's memory, and the code by which it says the contrary."""


def tier_of(value: int) -> Tier:
    """The tier of one claim's number. Raises: ValueError: no number of the draft's."""
    if value in (-1, 0, 1):
        return Tier.NONE
    if not -128 <= value <= 127:
        raise ValueError(f"{value} is not a trustworthiness claim")
    if -32 <= value <= 31:
        return Tier.AFFIRMING
    return Tier.WARNING if -96 <= value <= 95 else Tier.CONTRAINDICATED


def worst(values: Collection[int]) -> Tier:
    """The lowest tier of the claims that are made; none where nothing is claimed."""
    tiers = {tier_of(value) for value in values} - {Tier.NONE}
    return overall(tiers)


def overall(tiers: Collection[Tier]) -> Tier:
    """The tier of a whole: of its worst part. A part of which nothing is known spoils it nearly as surely as a bad one; so does no part."""
    order = (Tier.CONTRAINDICATED, Tier.NONE, Tier.WARNING, Tier.AFFIRMING)
    return next((tier for tier in order if tier in tiers), Tier.NONE)


def vector(
    examination: Examination, tolerated: Tolerated, *, emulated: bool, known_instance: bool, weak_platform: bool
) -> dict[str, int]:
    """Claims by name; what nothing could be found out about is left out.

    Args:
        tolerated: what the policy accepts although not passed; "fail" can never be.
        emulated: the root is EMULATED, so nothing is claimed of hardware but that.
        known_instance: the policy names the very device or machine; otherwise none is recognised.
        weak_platform: the policy accepts a patch level with known weaknesses.
    """
    found = {claim: _claim(claim, examination, tolerated) for claim in _GOOD}
    if not known_instance and found[_INSTANCE] == AFFIRMED:
        found[_INSTANCE] = NO_CLAIM
    if tier_of(found[_HARDWARE]) is Tier.AFFIRMING:
        found[_HARDWARE] = EMULATED if emulated else WARNED if weak_platform else AFFIRMED
    found[_MEMORY] = _memory(examination, found[_HARDWARE])
    return {claim: found[claim] for claim in CLAIMS if found.get(claim, NO_CLAIM) != NO_CLAIM}


def _claim(claim: str, examination: Examination, tolerated: Tolerated) -> int:
    """The worst that its checks say. One that could not be made and is not tolerated leaves nothing to affirm."""
    values = [_value(check, tolerated) for check in examination if PLACES.get(check.name, (_HARDWARE, 0))[0] == claim]
    bad = [value for value in values if value is not None and tier_of(value) is not Tier.AFFIRMING]
    if any(value != NO_CLAIM for value in bad):
        return max(bad)
    passed = {
        c.name for c in examination if c.status is not CheckStatus.NOT_CHECKED and PLACES.get(c.name, ("",))[0] == claim
    }
    needed = {_ESSENTIAL[claim]} if claim in _ESSENTIAL else set()
    return _GOOD[claim] if passed and needed <= passed and NO_CLAIM not in bad else NO_CLAIM


def _value(check: Check, tolerated: Tolerated) -> int | None:
    """What one check says of its claim; None: nothing, and that is tolerated."""
    claim, failed = PLACES.get(
        check.name, (_HARDWARE, BROKEN)
    )  # a check that nobody placed here affirms nothing by failing
    accepted = (check.name, check.status) in tolerated
    match check.status:
        case CheckStatus.PASS:
            return _GOOD[claim]
        case CheckStatus.FAIL:
            return failed
        case CheckStatus.EXPIRED:
            return WARNED if accepted else CONTRAINDICATED
        case _:
            return None if accepted else NO_CLAIM


def _memory(examination: Examination, hardware: int) -> int:
    for check in examination:
        if check.name in _OPAQUE:
            if check.code == _OPAQUE[check.name]:
                return CONTRAINDICATED
            return AFFIRMED if check.status is CheckStatus.PASS and hardware in (AFFIRMED, WARNED) else NO_CLAIM
    return NO_CLAIM
