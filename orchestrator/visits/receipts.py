"""The receipt of a visit: the device's own statement checked and embedded, signed by the session signing key. Knows no GPU command."""

from __future__ import annotations

from base64 import b64encode
from functools import partial

from pydantic import ValidationError

from orchestrator.ledger.log import NewLeaf, receipt_leaf
from orchestrator.sessions.remembered import ModelState
from orchestrator.sessions.visit_state import VisitState
from orchestrator.visits.run import Run
from orchestrator.visits.statements import stated
from shared.claims.accountant import spent
from shared.claims.exact import claim_of
from shared.claims.layout import require_named
from shared.claims.receipt import Accumulated, DeviceStatement, Mixed, Receipt, TourStatement
from shared.claims.visit import VisitTimers
from shared.claims.visit_end import expected_of_end, expected_of_tour
from shared.crypto.cose import sign1
from shared.crypto.signing import PartyKey
from shared.errors import VerificationFailed
from shared.wire.codec import encode


def check_statement(
    run: Run,
    statement: bytes,
    after: ModelState,
    *,
    outcome: str,
    visit: VisitState | None = None,
    mixed: Mixed | None = None,
) -> DeviceStatement:
    """The device's signature, then every field that the orchestrator knows better. `after`: what the visit ended at, with this `outcome`.

    `visit`: which, if not the open one; `mixed`: the mixture that it was trained on in, if any.

    Raises:
        VerificationFailed: a field that is not this visit's (code `statement-mismatch`). Conflict: as `stated`.
    """
    payload = stated(run, statement)
    try:
        claims = claim_of(DeviceStatement, payload)
    except ValidationError:
        raise VerificationFailed("The device statement is malformed", code="statement-malformed") from None
    visit, state = visit or run.visit, run.state
    dataset = run.dataset_of(visit.holder)
    expected = {
        "device": state.device, "backend": state.backend, "boot_counter": run.life.boot_counter, "session": state.id,
        "visit": visit.id, "epoch": visit.epoch, "holder": visit.holder, "travel_mode": state.manifest.travel_mode,
        "program": state.manifest.program,
        "model_before": run.committed.model, "model_after": after.model, "first_step": visit.first_step,
        "records": visit.records, "commitment": visit.details["commitment"], "dataset_root": dataset.root,
        "dataset_records": dataset.records, "privacy": state.manifest.privacy,
        "accumulated": _accumulated(run, after), "mixed": mixed,
    }  # fmt: skip
    pairs = {name: (value, getattr(claims, name)) for name, value in expected.items()}
    for name, (value, got) in {**pairs, **expected_of_end(claims, outcome, visit.holder, state.manifest)}.items():
        if got != value:
            raise VerificationFailed(f"The device statement's {name} is not this visit's", code="statement-mismatch",
                                     expected=str(value), got=str(got))  # fmt: skip
    return claims


def _accumulated(run: Run, after: ModelState) -> Accumulated | None:
    if run.state.manifest.accumulate is None:
        return None
    before = require_named(run.committed.optimiser)
    return Accumulated(before=before, after=require_named(after.optimiser), batches=after.batches)


def check_tour_statement(run: Run, statement: bytes | None, claims: TourStatement) -> None:
    """The device's signature over exactly these claims of a tour's end, but for the life, which may be an earlier one's; and nothing is
    left in the model of a tour that was dropped.

    Raises:
        VerificationFailed: it has none, or a field that no such tour's end has (code `statement-mismatch`). Conflict: as `stated`.
    """
    if statement is None:
        raise VerificationFailed("The GPU signed nothing of the tour's end", code="no-statement-key")
    payload = stated(run, statement)
    try:
        said = claim_of(TourStatement, payload)
    except ValidationError:
        raise VerificationFailed("The device statement is malformed", code="statement-malformed") from None
    if said.model_copy(update={"life": claims.life}) != claims:
        raise VerificationFailed("The device statement is not of this tour's end", code="statement-mismatch",
                                 expected=str(claims), got=str(said))  # fmt: skip
    for name, (value, got) in expected_of_tour(said).items():
        if got != value:
            raise VerificationFailed(f"The device statement's {name} is not as it must be", code="statement-mismatch",
                                     expected=str(value), got=str(got))  # fmt: skip


def sign_receipt(receipt: Receipt, key: PartyKey) -> bytes:
    """COSE_Sign1 by the session signing key, which it names by fingerprint."""
    return sign1(encode(receipt), key, kid=bytes.fromhex(key.fingerprint))


def make_receipt(
    run: Run,
    statement: bytes,
    *,
    outcome: str,
    before: float | None,
    after: float | None,
    visit: VisitState | None = None,
) -> NewLeaf:
    """Sign the receipt (of `visit`, or the open one), make its leaf, and queue it for the holder's inbox after the commit."""
    visit, state = visit or run.visit, run.state
    details, dataset = visit.details, run.dataset_of(visit.holder)
    receipt = Receipt.model_validate({
        "session": state.id, "visit": visit.id, "index": visit.index, "round": visit.round, "attempt": visit.attempt,
        "holder": visit.holder, "manifest": state.manifest_digest, "dataset_root": dataset.root, "epoch": visit.epoch,
        "fence_epoch": visit.fence_epoch, "outcome": outcome, "gpu_evidence": details["gpu_evidence"],
        "holder_runtime_data": details["holder_runtime_data"],
        "orchestrator_runtime_data": details["orchestrator_runtime_data"],
        "losses_released": bool(details.get("losses_released")), "validation_before": before, "validation_after": after,
        "timers": VisitTimers.model_validate(details["timers"]), "statement": statement, "closed_at": int(run.clock()),
        "privacy_spent": spent(state.manifest, visit.holder, visit.round, dataset.records),
    })  # fmt: skip
    cose = sign_receipt(receipt, run.signing_key)
    leaf = receipt_leaf(state.tree, state.id, cose, visit=visit.id, holder=visit.holder, outcome=outcome)
    holder, index = visit.holder, leaf.fact["index"]
    told = b64encode(cose).decode()
    send = partial(run.inboxes.post, holder, kind="receipt", session=state.id, receipt=told, receipt_index=index)
    run.outbox.put(holder, send)
    return leaf
