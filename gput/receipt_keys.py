"""Whose keys signed a session's receipts: each believed by its quote and its GPU's evidence, from the files of a receipts folder.

Knows the formats of `shared`; asks no service.
"""

from __future__ import annotations

from base64 import b64decode
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from gput.receipt_folder import KEYS, parse_line, read_lines
from gput.receipt_known import Keyring, SignedFor, Signer
from shared.attestation.channel import gpu_evidence_digest, report_data
from shared.attestation.collateral_store import CollateralStore
from shared.attestation.cpu_trust import CpuPolicy, CpuReference, CpuRoots, CpuTrust
from shared.attestation.cpu_verifier import VerifiedCvm
from shared.attestation.cvm_verifier import verify_cvm_evidence
from shared.attestation.gpu_verifier import GpuPolicy, GpuTrust, verify_gpu_evidence, verify_statement_key
from shared.attestation.introductions import check_made
from shared.attestation.nonces import gpu_nonce
from shared.attestation.session_events import check_session_event
from shared.attestation.snp_trust import SnpTrust
from shared.canonical import json_value, sha256
from shared.errors import BadRequest, ConfigurationError, GputError, VerificationFailed
from shared.wire.visit import Evidence, GpuEvidence, RuntimeData


class named:  # noqa: N801  # reads as a word at the call
    """Says which part an error is about."""

    def __init__(self, part: str) -> None:
        self._part = part

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, GputError):
            raise VerificationFailed(
                f"{self._part}: {error.detail}", code=error.code, expected=error.expected, got=error.got
            ) from None
        if isinstance(error, (ValidationError, KeyError, TypeError, ValueError)):
            raise VerificationFailed(f"{self._part}: malformed ({type(error).__name__})", code="malformed") from None


@dataclass(frozen=True)
class _Rules:
    """What the keys are held to: trust from the folder, policies from the manifest. `max_age_s`: how long a quote counts.
    `session`, `manifest`: whose they are, the latter by its digest (hex). `since`: when it began at the earliest, Unix seconds."""

    session: str
    manifest: str
    cpu: CpuTrust
    gpu: GpuTrust
    gpu_policy: GpuPolicy
    max_age_s: int
    since: float


def believed_keys(folder: Path, book: SignedFor, trust: Path | None = None) -> Keyring:
    """The folder's keys, each no older than the session.

    `trust`: the folder of roots, reference values and lists to believe them by; None: the copy that lies beside the receipts, which whoever
    saved them chose.

    Raises:
        VerificationFailed: naming the key and the check. BadRequest `no-trust`: of `trust`. ConfigurationError: of `folder`.
    """
    try:
        rules = _rules(trust or folder, book)
    except ConfigurationError as error:
        if trust is None:
            raise
        raise BadRequest(
            f"{trust} is no trust folder to judge by: {error.detail}", code="no-trust",
            remedy="Name the folder with the roots you believe by --trust, in Python by Trust(folder).",
        ) from None  # fmt: skip
    found = {}
    for number, line in enumerate(read_lines(folder, KEYS)):
        with named(f"{KEYS}: key {number}"):
            item = parse_line(line)
            runtime_bytes = b64decode(item["runtime_data"])
            found[sha256(runtime_bytes).hex()] = _signer(item, runtime_bytes, rules)
    return Keyring(found)


def _rules(trust: Path, book: SignedFor) -> _Rules:
    orchestrator = book.manifest.orchestrator_evidence
    roots, reference = CpuRoots.load(trust / "cpu-roots.pem"), CpuReference.load(trust / "reference.json")
    collateral = CollateralStore.load(trust / "collateral", roots.certificates, archive=True)
    policy = CpuPolicy.of(orchestrator, allow_emulated=True)
    cpu = CpuTrust(roots, reference, policy, collateral, SnpTrust.load(trust))
    gpu_policy = GpuPolicy.of(book.manifest.gpu_evidence, allow_emulated=True)
    return _Rules(book.session, book.digest, cpu, GpuTrust.load(trust), gpu_policy, orchestrator.max_age_s, book.since)


def _signer(item: dict[str, Any], runtime_bytes: bytes, rules: _Rules) -> Signer:
    runtime = RuntimeData.model_validate(json_value(runtime_bytes))
    _check_whose(runtime, rules)
    evidence = GpuEvidence.model_validate(item["gpu_evidence"])
    # Certificates, collateral and lists are judged at the time the keys were made, not when somebody looks.
    at = float(runtime.not_after - rules.max_age_s)
    check_made(at, rules.since)
    cvm = verify_cvm_evidence(
        Evidence.model_validate(item["evidence"]), report_data=report_data("orchestrator", runtime_bytes),
        role="orchestrator", trust=rules.cpu, at=at,
    )  # fmt: skip
    if isinstance(cvm, VerifiedCvm):
        check_session_event(cvm, runtime)
    if gpu_evidence_digest(evidence) != runtime.gpu_evidence or item["signing_key"] != runtime.signing_key:
        raise VerificationFailed("the quote speaks for other GPU evidence or another key", code="gpu-evidence-mismatch")
    signing_key = bytes.fromhex(runtime.signing_key)
    nonce = gpu_nonce(bytes.fromhex(evidence.challenge), bytes.fromhex(evidence.th2), evidence.epoch, signing_key)
    device = verify_gpu_evidence(
        b64decode(evidence.report), evidence.chain, nonce=nonce, trust=rules.gpu, policy=rules.gpu_policy, at=at,
        stapled=[b64decode(response) for response in evidence.ocsp],
    )  # fmt: skip
    statement_key = verify_statement_key(device, b64decode(evidence.statement_key))
    return Signer(signing_key, statement_key, str(runtime.gpu_evidence), device.device, device.backend.value)


def _check_whose(runtime: RuntimeData, rules: _Rules) -> None:
    """An attested orchestrator has a key in each of its sessions: one of another speaks for other holders, and another program's GPU."""
    expected = {"role": "orchestrator", "session": rules.session, "manifest": rules.manifest}
    for name, value in expected.items():
        if (got := getattr(runtime, name)) != value:
            raise VerificationFailed(f"the quote is of another {name}", code="mismatch", expected=value, got=got)
