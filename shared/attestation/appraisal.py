"""One piece of evidence, examined and held to a policy: verdict, trustworthiness vector, and both as claims. Knows no format, no token."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal

from shared.attestation.ar4si import Tier, Tolerated, vector, worst
from shared.attestation.cpu_trust import EMULATED_MARK
from shared.attestation.results import CheckStatus, Examination
from shared.errors import VerificationFailed
from shared.names import Backend

STATUS, VECTOR, POLICY = "ear.status", "ear.trustworthiness-vector", "ear.appraisal-policy-id"
EVIDENCE: Final = "ear.veraison.annotated-evidence"
VERDICT, ROOT_SET, CHECKS = "gput.verdict", "gput.root-set", "gput.checks"
Kind = Literal["gpu-report", "tdx-quote", "snp-report"]
Verdict = Literal["accepted", "refused"]


@dataclass(frozen=True)
class Appraisal:
    """One piece of evidence, examined, and the policy that it was held to.

    Attributes:
        label: what it is evidence of, unique within a token, for instance "gpu" or "cvm:north".
        kind: its format. evidence: SHA-256 of its bytes, hex.
        tolerated: what the policy accepts although not passed.
        root_set: whose root it stands on; None where on none that is known.
        policy: digest of the policy (`policy_id.policy_digest`).
        nonce: what the evidence covers: a GPU's nonce (32 bytes), a CPU's report data (64).
        claims: what the evidence says, by the names of its maker; ready for JSON.
        known_instance, weak_platform: as `ar4si.vector`.
    """

    label: str
    kind: Kind
    examination: Examination
    tolerated: Tolerated
    root_set: str | None
    policy: str
    evidence: str
    nonce: bytes | None = None
    claims: Mapping[str, object] = field(default_factory=dict)
    known_instance: bool = False
    weak_platform: bool = False

    @property
    def verdict(self) -> Verdict:
        """Accepted only as `Examination.require` accepts: no checks, no acceptance."""
        try:
            self.examination.require(self.tolerated)
        except VerificationFailed:
            return "refused"
        return "accepted" if self.root_set is not None else "refused"

    @property
    def backend(self) -> Backend | None:
        """Where it comes from, by its root; None where that is unknown."""
        if self.root_set is None:
            return None
        return Backend.EMULATED if self.root_set == EMULATED_MARK else Backend.HARDWARE

    @property
    def vector(self) -> dict[str, int]:
        """The trustworthiness vector."""
        return vector(
            self.examination, self.tolerated, emulated=self.root_set == EMULATED_MARK, known_instance=self.known_instance,
            weak_platform=self.weak_platform,
        )  # fmt: skip

    @property
    def status(self) -> Tier:
        """Default deny: what is refused is at best "none", what nobody could check affirms nothing."""
        values = self.vector
        if self.verdict == "accepted":
            return worst(values.values()) if "hardware" in values else Tier.NONE
        refused = self.examination.refused(pair for pair in self.tolerated if pair[1] is not CheckStatus.FAIL)
        return Tier.NONE if refused is None or refused.status is CheckStatus.NOT_CHECKED else Tier.CONTRAINDICATED

    def submodule(self) -> dict[str, Any]:
        """EAR-appraisal claims of this piece."""
        found: dict[str, Any] = {
            STATUS: self.status.value,
            VECTOR: self.vector,
            POLICY: self.policy,
            EVIDENCE: dict(self.claims),
            "gput.kind": self.kind,
            VERDICT: self.verdict,
            ROOT_SET: self.root_set,
            "gput.backend": self.backend.value if self.backend else None,
            "gput.evidence": self.evidence,
            CHECKS: check_list(self.examination),
        }
        if self.nonce is not None:
            found["eat_nonce"] = base64.urlsafe_b64encode(self.nonce).rstrip(b"=").decode()
        return found


def check_list(examination: Examination) -> list[dict[str, Any]]:
    """Every check as one record, in the order of the recipe; what the table, the API and the token show."""
    return [
        {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(check).items()}
        for check in examination
    ]
