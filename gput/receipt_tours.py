"""Tours of accumulated gradients in a saved log: what each visit added, and the device's word on each end. Knows no file and no service.

A visit of such a session leaves the model as it found it; only the end of a tour changes it, and its leaf says so under the device's key.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping
from typing import Any

from gput.receipt_keys import named
from gput.receipt_known import Keyring, SignedFor
from gput.receipt_leaves import HeldReceipt
from shared.canonical import cbor_value
from shared.claims.receipt import TourStatement
from shared.claims.visit_end import expected_of_tour, rose_too_far
from shared.crypto.cose import raw_verifier, verify1
from shared.errors import VerificationFailed
from shared.protocol.session import SessionFact

Ends = Mapping[int, TourStatement]
"""What the device signed of each tour's end, by the number of its leaf."""


def tour_ends(events: Mapping[int, Any], keys: Keyring, book: SignedFor, where: str) -> Ends:
    """Every tour's end in the log, under the statement key of a GPU that the session's channels attested.

    Raises:
        VerificationFailed: naming the leaf.
    """
    found = {}
    for index, (_, _, kind, details) in events.items():
        if kind != SessionFact.TOUR_ENDED:
            continue
        with named(f"{where}: leaf {index}"):
            if book.manifest.accumulate is None:
                raise VerificationFailed("the end of a tour in a session that has none", code="mismatch")
            said = _believed(b64decode(details["statement"], validate=True), keys)
            _check_end(said, details, book)
            found[index] = said
    return found


def _check_end(said: TourStatement, details: Mapping[str, Any], book: SignedFor) -> None:
    told = {
        "session": book.session, "program": book.manifest.program, "round": details["round"], "stepped": details["stepped"],
    }  # fmt: skip
    expected = {name: (value, getattr(said, name)) for name, value in told.items()} | expected_of_tour(said)
    for name, (value, got) in expected.items():
        if got != value:
            raise VerificationFailed(f"{name} differs", code="mismatch", expected=str(value), got=str(got))
    if said.stepped and rose_too_far(book.manifest, details["validation_before"], details["validation_after"]):
        raise VerificationFailed("a tour's step was kept though the held-out loss rose too far", code="mismatch")


def _believed(cose: bytes, keys: Keyring) -> TourStatement:
    for signer in {raw_verifier(s.statement_key): s for s in keys.signers.values()}.values():
        try:
            said = TourStatement.model_validate(cbor_value(verify1(cose, signer.statement_key)))
        except VerificationFailed:
            continue
        if (said.device, said.backend) == (signer.device, signer.backend):
            return said
    raise VerificationFailed("signed by no GPU that was attested in this session", code="bad-signature")


def check_accumulated(receipts: Mapping[int, HeldReceipt], ends: Ends, events: Mapping[int, Any], where: str) -> None:
    """The accumulator's own chain: each visit adds to what the leaf before it left, and each end spends exactly what was added.

    A restore puts an earlier state back, which one of the leaves before it left.

    Raises:
        VerificationFailed: naming the leaf, code `accumulator-gap`.
    """
    left: set[tuple[str, int]] = set()  # (digest, batches) that the next leaf may begin with
    ever: set[tuple[str, int]] = set()
    for index in sorted({*receipts, *ends, *events}):
        if index in ends:
            end = ends[index]
            began, after = (end.optimiser_before, end.batches), (end.optimiser_after, 0)
        elif index in receipts:
            began, after = _of_visit(index, receipts[index], where)
        else:
            left = set(ever) if events[index][2] == SessionFact.RESTORED else left
            continue
        if began not in left if ever else began[1]:
            raise VerificationFailed(
                f"{where}: leaf {index}: the accumulator did not begin with what was left in it", code="accumulator-gap"
            )
        left = {after}
        ever |= {began, after}


def _of_visit(index: int, receipt: HeldReceipt, where: str) -> tuple[tuple[str, int], tuple[str, int]]:
    added = receipt.steps if receipt.outcome == "closed" else 0
    if receipt.accumulated is None or receipt.model_before != receipt.model_after:
        raise VerificationFailed(
            f"{where}: leaf {index}: visit {receipt.visit} changed the model, which the end of a tour alone may",
            code="accumulator-gap",
        )
    before, after, batches = receipt.accumulated
    return (before, batches - added), (after, batches)
