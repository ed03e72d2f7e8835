"""Receipts of this holder's own visits: signatures, device statement and every claim held against what this holder itself remembers.

A verification lists its checks by name with their outcome; a receipt that fails one is kept and shown as not verified. Knows no HTTP.
"""

from __future__ import annotations

import base64
import json
from dataclasses import asdict, dataclass
from typing import Any, Final, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

from data_holder.protocol.state import ChannelRecord, SessionState
from data_holder.requests import VerifiedManifest
from data_holder.tables.legible import legible
from data_holder.tables.rows import Row
from shared.canonical import cbor_in_any_form, sha256
from shared.claims.accountant import spent
from shared.claims.exact import claim_of
from shared.claims.manifest import Manifest
from shared.claims.receipt import DeviceStatement, Receipt
from shared.claims.visit_end import expected_of_end, expected_of_verdict
from shared.crypto.cose import Sign1, load_verifier, parse1, verify1
from shared.errors import BadRequest, GputError, VerificationFailed
from shared.protocol.mixture import mixture_seed

C = TypeVar("C", bound=BaseModel)


@dataclass(frozen=True)
class Check:
    """One named check and its outcome."""

    check: str
    ok: bool
    detail: str = ""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


DAMAGED: Final = Check("what was kept of its checks", False, "it is damaged")
_KEPT: TypeAdapter[list[Check]] = TypeAdapter(list[Check])


def kept_checks(text: str) -> list[Check]:
    """A stored receipt's checks; where they cannot be read, one that failed."""
    found = legible(_KEPT, text)
    return [DAMAGED] if found is None else found


@dataclass(frozen=True)
class CheckedReceipt:
    """A receipt with its claims and the outcome of every check. `verified` only if all agreed."""

    index: int
    cose: bytes
    receipt: Receipt
    statement: DeviceStatement
    checks: tuple[Check, ...]

    @property
    def verified(self) -> bool:
        return bool(self.checks) and all(check.ok for check in self.checks)

    def row(self) -> dict[str, Any]:
        """The stored form, less its key (session, index)."""
        return {
            "visit": self.receipt.visit, "epoch": self.receipt.epoch, "outcome": self.receipt.outcome,
            "backend": self.statement.backend, "closed_at": float(self.receipt.closed_at), "cose": self.cose,
            "verified": self.verified, "checks": json.dumps([check.as_json() for check in self.checks]),
        }  # fmt: skip


def check_receipt(
    cose: bytes,
    index: int,
    state: SessionState,
    *,
    holder: str,
    request: VerifiedManifest,
    visit: Row | None,
) -> CheckedReceipt:
    """Verify one receipt.

    Args:
        request: the manifest this holder approved.
        visit: this holder's own row of the receipt's epoch; None when it never provisioned it.

    Raises:
        VerificationFailed: it names no channel of this holder, or is not signed by an orchestrator this holder attested; such
            bytes are nobody's receipt and are not stored.
    """
    claims = _parse(Receipt, _unverified_payload(cose))
    channel = state.channels.get(claims.orchestrator_runtime_data)
    if channel is None or not channel.holder_runtime:
        raise VerificationFailed(
            "the receipt names a channel that this holder never opened", code="receipt-channel-unknown",
            got=claims.orchestrator_runtime_data,
        )  # fmt: skip
    message = parse1(cose)
    receipt = _parse(Receipt, message.verified(_signer(message, state)))
    checks = [Check("orchestrator signature", True)]
    statement = _statement(receipt, channel, checks)
    said = {"session": state.session, "holder": holder, "manifest": request.digest, "dataset_root": state.dataset_root}
    _match(checks, "receipt", receipt, said)
    _match(checks, "channel", receipt, {
        "holder_runtime_data": channel.holder_runtime, "gpu_evidence": channel.gpu_evidence,
    })  # fmt: skip
    same = {name: getattr(receipt, name) for name in ("session", "visit", "epoch", "holder", "dataset_root")}
    _match(checks, "statement", statement, {
        **same, "program": request.manifest.program, "device": channel.device, "travel_mode": request.manifest.travel_mode,
    })  # fmt: skip
    _privacy(checks, receipt, statement, request.manifest, state.records)
    _accumulation(checks, statement, request.manifest)
    _first_link(checks, statement, request.manifest)
    _mixture(checks, receipt, statement, request.manifest)
    checks.append(Check("fence after visit", receipt.fence_epoch > receipt.epoch))
    checks.append(Check("scrubbed", statement.scrubbed_bytes >= statement.length))
    _end(checks, receipt, statement, request.manifest, holder)
    _own_memory(checks, receipt, statement, visit)
    return CheckedReceipt(index, cose, receipt, statement, tuple(checks))


def _end(checks: list[Check], receipt: Receipt, statement: DeviceStatement, manifest: Manifest, holder: str) -> None:
    """That the visit ended as visits do, and was accepted only if the manifest's rule accepts it."""
    for name, (value, got) in expected_of_end(statement, receipt.outcome, holder, manifest).items():
        checks.append(_agrees(f"statement: {name}", value, got))
    for name, (value, got) in expected_of_verdict(receipt, statement, manifest).items():
        checks.append(_agrees(f"receipt: {name}", value, got))


def _privacy(
    checks: list[Check], receipt: Receipt, statement: DeviceStatement, manifest: Manifest, records: int
) -> None:
    """That the GPU trained as privately as agreed, and what that has spent; computed here, not believed."""
    if manifest.privacy is None and statement.privacy is None and receipt.privacy_spent is None:
        return
    _match(checks, "statement", statement, {"privacy": manifest.privacy})
    _match(checks, "receipt", receipt, {"privacy_spent": spent(manifest, receipt.holder, receipt.round, records)})


def _accumulation(checks: list[Check], statement: DeviceStatement, manifest: Manifest) -> None:
    """That the records became a step, or an addition to a tour's gradients that changed no parameter, as agreed."""
    agreed = manifest.accumulate is not None
    if not agreed and statement.accumulated is None:
        return
    checks.append(Check("statement: accumulated", agreed is (statement.accumulated is not None)))
    if agreed:
        _match(checks, "statement", statement, {"model_after": statement.model_before})


def _first_link(checks: list[Check], statement: DeviceStatement, manifest: Manifest) -> None:
    """That what begins at the predecessor's step begins with the predecessor's model, and nothing before it."""
    said = manifest.predecessor
    if said is not None:
        checks.append(Check("statement: after its predecessor", statement.first_step >= said.step))
    if said is not None and statement.first_step == said.step:
        _match(checks, "predecessor", statement, {"model_before": said.model})


def _mixture(checks: list[Check], receipt: Receipt, statement: DeviceStatement, manifest: Manifest) -> None:
    """That the records were trained on by themselves, or in the round's mixture in the order that the manifest fixes, as agreed."""
    agreed, mixed = manifest.collect == "tour", statement.mixed
    if not agreed and mixed is None:
        return
    checks.append(Check("statement: mixed", agreed is (mixed is not None)))
    if not agreed or mixed is None:
        return
    seed = mixture_seed(manifest.training.seed, receipt.round)
    _match(checks, "statement: mixed", mixed, {"round": receipt.round, "seed": seed})
    checks.append(Check("statement: mixed: place", mixed.first + statement.records <= mixed.records))


def _signer(message: Sign1, state: SessionState) -> bytes:
    """The key a receipt names, if it is a session signing key that this holder attested.

    Not only the visit's own channel counts: an orchestrator that restarts after the training closes the visit in its next life.
    """
    for channel in state.channels.values():
        if sha256(channel.signing_key) == message.kid:
            return channel.signing_key
    raise VerificationFailed(
        "the receipt is signed by a key that this holder never attested",
        code="receipt-key-unknown",
        got=message.kid.hex(),
    )


def _statement(receipt: Receipt, channel: ChannelRecord, checks: list[Check]) -> DeviceStatement:
    """The device's own claims; under the statement key that the attested GPU's leaf certified."""
    if not channel.statement_key:
        checks.append(Check("device signature", False, "this device certified no statement key"))
        return _parse(DeviceStatement, _unverified_payload(receipt.statement))
    try:
        payload = verify1(receipt.statement, load_verifier(channel.statement_key))
    except GputError as error:
        checks.append(Check("device signature", False, error.detail))
        payload = _unverified_payload(receipt.statement)
    else:
        checks.append(Check("device signature", True))
    return _parse(DeviceStatement, payload)


def _own_memory(checks: list[Check], receipt: Receipt, statement: DeviceStatement, visit: Row | None) -> None:
    """What only this holder can check: that the GPU consumed exactly what this holder wrote."""
    if visit is None:
        checks.append(Check("own visit", False, f"this holder wrote nothing under epoch {receipt.epoch}"))
        return
    expected = {"records": visit["count"], "length": visit["length"], "commitment": visit["commitment"]}
    _match(checks, "own data", statement, expected)
    _match(checks, "own visit", receipt, {name: visit[name] for name in ("visit", "round", "index", "attempt")})


def _match(checks: list[Check], prefix: str, claims: BaseModel, expected: dict[str, Any]) -> None:
    for name, value in expected.items():
        checks.append(_agrees(f"{prefix}: {name}", value, getattr(claims, name)))


def _agrees(check: str, expected: object, got: object) -> Check:
    return Check(check, got == expected, "" if got == expected else f"expected {expected}, got {got}")


def _parse(kind: type[C], payload: bytes) -> C:
    try:
        return claim_of(kind, payload)
    except ValidationError as error:
        raise VerificationFailed(
            f"{kind.__name__}: {error.error_count()} fields are not as the profile says", code="receipt-malformed"
        ) from None


def _unverified_payload(cose: bytes) -> bytes:
    """The payload before its signature is checked: only to find out which key it must be checked with."""
    try:
        payload = cbor_in_any_form(cose).value[2]
    except (BadRequest, AttributeError, TypeError, LookupError) as error:
        raise VerificationFailed("not a COSE_Sign1 message", code="receipt-malformed") from error
    if not isinstance(payload, bytes):
        raise VerificationFailed("a receipt carries its payload", code="receipt-malformed")
    return payload


def claimed_epoch(cose: bytes) -> int:
    """The epoch a receipt names, *unverified*: only to look up this holder's own visit. Raises: VerificationFailed."""
    return _parse(Receipt, _unverified_payload(cose)).epoch


def claimed_visit(cose: bytes) -> str:
    """The visit a receipt names, *unverified*: only to find out whether it is kept already. Raises: VerificationFailed."""
    return _parse(Receipt, _unverified_payload(cose)).visit


def signer_named(cose: bytes) -> bytes:
    """The key id that a receipt's signature names, *unverified*: only to have that key known. Raises: VerificationFailed."""
    return parse1(cose).kid


def explain(cose: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """(receipt claims, device statement claims) of a stored receipt as JSON values, for reading."""
    claims = _parse(Receipt, _unverified_payload(cose))
    statement = _parse(DeviceStatement, _unverified_payload(claims.statement))
    shown = claims.model_dump(mode="json", exclude={"statement"})
    shown["statement"] = base64.b64encode(claims.statement).decode()
    return shown, statement.model_dump(mode="json")
