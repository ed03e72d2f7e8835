"""Tours of accumulated gradients in a saved log: what each visit added, and the device's word on each end. Knows no file and no service.

A visit of such a session leaves the model as it found it; only the end of a tour changes it, and its leaf says so under the device's key.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping
from typing import Any, NamedTuple

from gput.receipt_keys import named
from gput.receipt_known import Keyring, SignedFor
from gput.receipt_leaves import HeldReceipt
from gput.receipt_past import gone_back
from shared.claims.exact import claim_of
from shared.claims.receipt import TourStatement
from shared.claims.visit_end import expected_of_tour, rose_too_far
from shared.crypto.cose import raw_verifier, verify1
from shared.errors import VerificationFailed
from shared.protocol.log_events import chosen, restored_to
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
        # By type too: True is equal to 1, and another reader takes neither for the other.
        if type(got) is not type(value) or got != value:
            raise VerificationFailed(f"{name} differs", code="mismatch", expected=str(value), got=str(got))
    losses = details["validation_before"], details["validation_after"]
    if not all(map(_is_loss, losses)):
        raise VerificationFailed("a tour's end tells a held-out loss that is no number", code="malformed")
    if said.stepped and rose_too_far(book.manifest, *losses):
        raise VerificationFailed("a tour's step was kept though the held-out loss rose too far", code="mismatch")


def _is_loss(value: Any) -> bool:
    """None, or a number that every reader can hold. A whole one, too: an orchestrator that started again has 2 from its journal for 2.0."""
    return value is None or type(value) is float or (type(value) is int and abs(value) < 2**53)


def _believed(cose: bytes, keys: Keyring) -> TourStatement:
    for signer in {raw_verifier(s.statement_key): s for s in keys.signers.values()}.values():
        try:
            said = claim_of(TourStatement, verify1(cose, signer.statement_key))
        except VerificationFailed:
            continue
        if (said.device, said.backend) == (signer.device, signer.backend):
            return said
    raise VerificationFailed("signed by no GPU that was attested in this session", code="bad-signature")


class _Held(NamedTuple):
    """An accumulator: its digest, how many batches' gradients it holds and of which round's visits (0: it is empty), beside which model."""

    digest: str
    batches: int
    round: int
    model: str


def check_accumulated(receipts: Mapping[int, HeldReceipt], ends: Ends, events: Mapping[int, Any], where: str) -> None:
    """The accumulator's own chain: each visit adds to what the leaf before it left, and each end spends exactly what was added, all of it
    by visits of its own round. A restore puts back what stood at that position; the choice of the best model, what stood beside that.

    Raises:
        VerificationFailed: naming the leaf, code `accumulator-gap`.
    """
    stood: list[tuple[int, _Held]] = []  # with the stops behind it, in the log's order
    left: set[_Held] = set()  # what the next leaf may begin with; empty before anything is known
    for index in sorted({*receipts, *ends, *events}):
        if index not in receipts and index not in ends:
            stood, left = _heard(events[index], stood, left)
            continue
        receipt, at = receipts.get(index), f"{where}: leaf {index}"
        began, after = _of_end(ends[index]) if receipt is None else _of_visit(at, receipt)
        if began not in left if stood else began.batches:
            raise VerificationFailed(f"{at}: {_fault(began, left)}", code="accumulator-gap")
        stood = stood or [(0, began)]
        stood.append((stood[-1][0] if receipt is None else receipt.stop, after))
        left = {after}


def _heard(event: Any, stood: list[tuple[int, _Held]], left: set[_Held]) -> tuple[list[tuple[int, _Held]], set[_Held]]:
    position, best = restored_to(event), chosen(event)
    if position is not None:
        return gone_back(stood, position)
    again = sorted({held for _, held in stood if held.model == best})
    # A late approval may bring a visit before the GPU has gone back to it; and once it has, a checkpoint seals it at the last stop.
    return [*stood, *((stood[-1][0], held) for held in again)], left | set(again)


def _fault(began: _Held, left: set[_Held]) -> str:
    rounds = {held.round for held in left if held._replace(round=began.round) == began}
    if rounds:
        return f"the accumulator holds the gradients of round {min(rounds)}, and this is of round {began.round}"
    return "the accumulator did not begin with what was left in it"


def _of_end(said: TourStatement) -> tuple[_Held, _Held]:
    began = _Held(said.optimiser_before, said.batches, said.round, said.model_before)
    return began, _Held(said.optimiser_after, 0, 0, said.model_after)


def _of_visit(at: str, receipt: HeldReceipt) -> tuple[_Held, _Held]:
    if receipt.accumulated is None or receipt.model_before != receipt.model_after:
        raise VerificationFailed(
            f"{at}: visit {receipt.visit} changed the model, which the end of a tour alone may", code="accumulator-gap"
        )
    before, after, batches = receipt.accumulated
    began = batches - (receipt.steps if receipt.outcome == "closed" else 0)

    def held(digest: str, count: int) -> _Held:
        return _Held(digest, count, receipt.round if count else 0, receipt.model_before)

    return held(before, began), held(after, batches)
