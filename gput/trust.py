"""Whom a client believes to be the orchestrator: a trust folder, a policy, and whether emulation may count. Knows no HTTP."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from shared.crypto.signing import fingerprint, load_public
from shared.errors import BadRequest, ConfigurationError, VerificationFailed

if TYPE_CHECKING:
    from shared.attestation.orchestrator_proof import AttestedOrchestrator
    from shared.claims.manifest import EvidencePolicy
    from shared.wire.attestation import OrchestratorProof

Unattested = Literal["unattested"]
UNATTESTED: Unattested = "unattested"
"""In place of a `Trust`: the orchestrator is not asked what it is. Receipts are verified none the less."""
KNOWN: Final = "orchestrator.pub"
"""File of a trust folder with the identity of the one orchestrator that is meant; several keys, one after another, for a rotation."""
_BLOCK = re.compile(rb"-----BEGIN [^-]+-----.*?-----END [^-]+-----\n?", re.DOTALL)


class NotBelieved(VerificationFailed):
    """The client's own check, of a proof or of an answer, says no. A service's word it never is, whatever was asked."""


def not_believed(error: VerificationFailed) -> NotBelieved:
    """The same, as the client's own."""
    return NotBelieved(error.detail, code=error.code, remedy=error.remedy, expected=error.expected, got=error.got)


@dataclass(frozen=True, init=False)
class Trust:
    """What a client believes beforehand.

    Args:
        folder: roots, reference values, collateral; the installation's trust folder, fetched from whoever you believe. Has it an
            `orchestrator.pub`, then only the orchestrator with that identity is believed, and no other that runs the same code.
        policy: evidence policy of the orchestrator, as in a manifest; default: Intel's and AMD's machines under strict rules.
        allow_emulated: let EMULATED roots of the folder count. Emulated hardware gives no confidentiality.
    """

    folder: Path
    policy: EvidencePolicy | None = None
    allow_emulated: bool = False

    def __init__(
        self, folder: Path | str, policy: EvidencePolicy | None = None, allow_emulated: bool = False
    ) -> None:  # written out since a folder may be named by text, as everywhere in the client, and is a Path afterwards
        for name, value in (("folder", Path(folder)), ("policy", policy), ("allow_emulated", allow_emulated)):
            object.__setattr__(self, name, value)

    def verify(self, proof: OrchestratorProof, *, nonce: str, caller: str, at: float) -> AttestedOrchestrator:
        """The orchestrator, believed.

        Raises:
            ConfigurationError: `no-trust`, or a file of the folder is unusable. BadRequest: the statement is none. VerificationFailed:
                `another-orchestrator`, or the check's own code.
        """
        from gput.attest.trust import Wish, load_trust
        from shared.attestation.orchestrator_proof import verify_orchestrator_proof

        if not any((self.folder / name).is_file() for name in ("cpu-roots.pem", "snp-roots.pem")):
            raise ConfigurationError(
                f"{self.folder} is no trust folder: it has no roots of machines",
                code="no-trust",
                remedy="Name the folder with the roots you believe (cpu-roots.pem or snp-roots.pem).",
            )
        wish = Wish(at=at, policy=self.policy, allow_emulated=self.allow_emulated)
        cpu = load_trust(self.folder, (), wish).cpu
        known = self._known()
        try:
            found = verify_orchestrator_proof(proof, nonce=nonce, caller=caller, cpu=cpu, at=at)
        except VerificationFailed as error:
            if error.code.endswith("-root-set") and not self.allow_emulated:
                error.remedy = (
                    "If it is emulated, which gives no confidentiality, and that may count: GPUT_ALLOW_EMULATED=1 (allow_emulated in the "
                    "configuration file), or Trust(…, allow_emulated=True)."
                )
            raise
        if known and found.identity_key not in known:
            raise VerificationFailed(
                "this orchestrator runs measured code, and is not the one that your trust folder names", code="another-orchestrator",
                expected=", ".join(sorted(map(fingerprint, known))), got=fingerprint(found.identity_key),
            )  # fmt: skip
        return found

    def _known(self) -> frozenset[bytes]:
        """Raw identity keys by `orchestrator.pub`; none: whoever runs measured code. Raises: ConfigurationError `trust-file`."""
        path = self.folder / KNOWN
        try:
            blocks = _BLOCK.findall(path.read_bytes())
            if not blocks:
                raise BadRequest("there is no public key in it")
            return frozenset(map(load_public, blocks))
        except FileNotFoundError:
            return frozenset()
        except (OSError, BadRequest) as error:
            why = error.detail if isinstance(error, BadRequest) else error.strerror
            raise ConfigurationError(
                f"{path} cannot be used: {why}", code="trust-file",
                remedy="Put the orchestrator's identity.pub there, or take the file away to believe any that runs measured code.",
            ) from None  # fmt: skip

    def allows(self, backends: tuple[str, ...]) -> None:
        """Refuse what emulated parts signed, where they do not count. Raises: VerificationFailed."""
        if not self.allow_emulated and "EMULATED" in backends:
            raise VerificationFailed(
                "these receipts are of an emulated GPU, which gives no confidentiality", code="emulated-root-refused",
                expected="HARDWARE", got=", ".join(backends), remedy="Say Trust(…, allow_emulated=True) if that is what you want.",
            )  # fmt: skip
