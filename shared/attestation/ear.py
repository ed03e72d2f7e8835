"""Attestation results as signed tokens: EAR claims (draft-ietf-rats-ear) in a JWT. Knows no clock, no service; judges no evidence.

Claim names and profile are those of the deployed implementations (Veraison, Confidential Containers): `ear.status` and so on; later
drafts write `ear_status`. What is ours stands under `gput.`. The signer is whoever verified: a party's key on the command line, the
session signing key of an orchestrator, for which its own quote speaks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import InitVar, dataclass
from types import MappingProxyType
from typing import Any, Final

from shared.attestation.appraisal import CHECKS, ROOT_SET, STATUS, VECTOR, VERDICT, Appraisal
from shared.attestation.ar4si import Tier, overall, tier_of, worst
from shared.attestation.cpu_trust import EMULATED_MARK
from shared.attestation.results import CheckStatus
from shared.crypto.jws import sign_compact, verify_compact
from shared.crypto.signing import PartyKey
from shared.errors import BadRequest, VerificationFailed

PROFILE: Final = "tag:github.com,2023:veraison/ear"
MEDIA_TYPE: Final = "eat+jwt"  # RFC 9782
DEVELOPER: Final = "GPU Travelling"
VERIFIER, ABOUT = "ear.verifier-id", "gput.about"
CLOCK_SLACK_S: Final = 60
_MINT = object()


def claims_set(
    appraisals: Sequence[Appraisal], *, build: str, at: int, about: Mapping[str, str] = MappingProxyType({})
) -> dict[str, Any]:
    """The EAR claims-set of these appraisals.

    Args:
        build: which build of the verifier's code, for `ear.verifier-id`.
        at: the verifier's time, whole seconds since 1970.
        about: what they belong to, for instance {"session": …}; so that no token stands for another's.

    Raises:
        BadRequest: `no-appraisal`, `repeated-appraisal`.
    """
    submodules = {appraisal.label: appraisal.submodule() for appraisal in appraisals}
    if not submodules:
        raise BadRequest("nothing was appraised, so there is no result", code="no-appraisal")
    if len(submodules) != len(appraisals):
        raise BadRequest("two appraisals have one label", code="repeated-appraisal")
    return {
        "eat_profile": PROFILE,
        "iat": at,
        VERIFIER: {"developer": DEVELOPER, "build": build},
        STATUS: overall({appraisal.status for appraisal in appraisals}).value,
        "submods": submodules,
        ABOUT: dict(about),
    }


def sign_result(claims: Mapping[str, Any], key: PartyKey) -> str:
    """The claims-set as a signed token, a JWT in compact form. Raises: BadRequest: not of a form that `read_result` would take."""
    _check_claims(claims)
    return sign_compact(dict(claims), key, typ=MEDIA_TYPE)


@dataclass(frozen=True)
class AttestationResult:
    """A token whose signature and form were verified. Only `read_result` makes it. `about` is what its verifier says it belongs to."""

    status: Tier
    issued_at: int
    about: Mapping[str, str]
    submodules: Mapping[str, Mapping[str, Any]]
    claims: Mapping[str, Any]
    _mint: InitVar[object] = None  # kept nowhere, so that `replace` cannot carry it into a changed copy

    def __post_init__(self, _mint: object) -> None:
        if _mint is not _MINT:
            raise TypeError("AttestationResult is made by read_result only")

    @property
    def accepted(self) -> bool:
        """Whether its verifier accepted every piece of evidence in it."""
        return bool(self.submodules) and all(part[VERDICT] == "accepted" for part in self.submodules.values())

    @property
    def emulated(self) -> bool:
        """Whether any piece stands on an EMULATED root."""
        return any(part[ROOT_SET] == EMULATED_MARK for part in self.submodules.values())


def read_result(token: str, public: bytes, *, at: float, max_age_s: float | None = None) -> AttestationResult:
    """Verify a token by exactly this verifier's key (raw Ed25519).

    Args:
        at: the reader's own time, seconds since 1970. max_age_s: how old a result may be; None: any age.

    Raises:
        BadRequest: `malformed-token`, `malformed-result`. VerificationFailed: `token-…`, `bad-signature`, `result-time`, `result-profile`,
            `result-contradicts`: it claims more than its own vector, checks or roots bear out.
    """
    claims = verify_compact(token, public, typ=MEDIA_TYPE)
    _check_claims(claims)
    issued = claims["iat"]
    if issued > at + CLOCK_SLACK_S or (max_age_s is not None and issued < at - max_age_s):
        raise VerificationFailed(
            "the attestation result is from the future, or too old", code="result-time", got=str(issued),
            expected=f"at most {at + CLOCK_SLACK_S:.0f}" + ("" if max_age_s is None else f", at least {at - max_age_s:.0f}"),
        )  # fmt: skip
    return AttestationResult(
        Tier(claims[STATUS]), issued, MappingProxyType(claims[ABOUT]), MappingProxyType(claims["submods"]),
        MappingProxyType(claims), _MINT,
    )  # fmt: skip


def _check_claims(claims: Mapping[str, Any]) -> None:
    """Form, and that no status is better than what bears it out; also of a token with a good signature."""
    if claims.get("eat_profile") != PROFILE:
        raise VerificationFailed(
            "the token is not an attestation result of a known profile", code="result-profile", expected=PROFILE,
            got=str(claims.get("eat_profile"))[:100],
        )  # fmt: skip
    about, submodules, iat = claims.get(ABOUT), claims.get("submods"), claims.get("iat")
    if type(iat) is not int or not isinstance(about, dict) or not isinstance(submodules, dict):
        raise _malformed("iat, submods or gput.about")
    if not submodules or not all(isinstance(text, str) for text in about.values()):
        raise _malformed("submods or gput.about")
    if _tier(claims.get(STATUS)) is not overall({_checked_tier(part) for part in submodules.values()}):
        raise _contradicts("the whole is not of its worst part's tier")


def _checked_tier(part: Any) -> Tier:
    if not isinstance(part, dict):
        raise _malformed("a submodule")
    values, checks = part.get(VECTOR), part.get(CHECKS)
    if not isinstance(values, dict) or not all(
        type(value) is int and -128 <= value <= 127 for value in values.values()
    ):
        raise _malformed("a trustworthiness vector")
    if not isinstance(checks, list) or not all(
        isinstance(c, dict) and c.get("status") in tuple(CheckStatus) for c in checks
    ):
        raise _malformed("a list of checks")
    if part.get(VERDICT) not in ("accepted", "refused") or not isinstance(part.get(ROOT_SET, 0), str | None):
        raise _malformed("a verdict or root set")
    tier, accepted = _tier(part.get(STATUS)), part[VERDICT] == "accepted"
    if accepted and not part[ROOT_SET]:
        raise _contradicts("what stands on no root is accepted")
    if accepted and (not checks or any(check["status"] == CheckStatus.FAIL for check in checks)):
        raise _contradicts("what has no checks, or a failed one, is accepted")
    believed = {Tier.NONE, worst(values.values())} if accepted else {Tier.NONE, Tier.CONTRAINDICATED}
    if tier not in believed or (tier is not Tier.NONE and accepted and "hardware" not in values):
        raise _contradicts("a status is not what its verdict and vector bear out")
    if part[ROOT_SET] in (None, EMULATED_MARK) and tier_of(values.get("hardware", 0)) is Tier.AFFIRMING:
        raise _contradicts("what stands on no maker's root passes for hardware")
    return tier


def _tier(value: Any) -> Tier:
    if value not in tuple(Tier):
        raise _malformed("a status")
    return Tier(value)


def _malformed(what: str) -> BadRequest:
    return BadRequest(f"the attestation result's {what} cannot be read", code="malformed-result")


def _contradicts(why: str) -> VerificationFailed:
    return VerificationFailed(f"the attestation result contradicts itself: {why}", code="result-contradicts")
