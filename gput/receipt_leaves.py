"""A leaf of a saved log, checked by itself: its line's one form, signatures, what receipt and statement say, its place in the log.

Knows no folder and no other leaf, so leaves may be checked in any order and by many processes. Each part is taken apart once and each
signature checked once, as there may be very many; what is kept of a leaf is little.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import Any, NamedTuple

from gput.receipt_known import Known, Signer
from gput.receipt_mixtures import Place, expected_of_mixture
from gput.receipt_privacy import check_privacy
from gput.receipt_stops import expected_of_stop
from shared.canonical import json_value
from shared.claims.exact import claim_of
from shared.claims.receipt import DeviceStatement, Receipt
from shared.claims.visit_end import expected_of_end, expected_of_verdict
from shared.crypto.cose import parse1, verify1
from shared.errors import VerificationFailed
from shared.protocol.log_events import checked_event, is_receipt
from shared.protocol.merkle import leaf_hash, verify_inclusion


class HeldReceipt(NamedTuple):
    """What a receipt says that is held against other leaves, or summed up. `stop`: its index in the plan; `epsilon`: spent, if anything.
    `accumulated`: digests of the accumulator before and after, and batches in it after, where gradients are accumulated. `place`: in the
    mixture, where tours are collected."""

    visit: str
    stop: int
    round: int
    holder: str
    outcome: str
    backend: str
    records: int
    first_step: int
    steps: int
    model_before: str
    model_after: str
    epsilon: float | None
    accumulated: tuple[str, str, int] | None
    place: tuple[int, int, int, int, int] | None  # as `Place`
    epoch: int

    @classmethod
    def of(cls, receipt: Receipt, said: DeviceStatement) -> HeldReceipt:
        """What counts of both."""
        spent, added = receipt.privacy_spent, said.accumulated
        return cls(
            receipt.visit, receipt.index, receipt.round, receipt.holder, receipt.outcome, said.backend, said.records,
            said.first_step, said.steps, said.model_before, said.model_after, None if spent is None else spent.epsilon,
            None if added is None else (added.before, added.after, added.batches), Place.of(said.mixed),
            receipt.epoch,
        )  # fmt: skip


class HeldLeaf(NamedTuple):
    """A leaf that holds by itself. `hash`: 32 bytes; `says`: of a receipt what counts further, of an event its bytes."""

    hash: bytes
    says: HeldReceipt | bytes


def check_leaf(known: Known, index: int, line: bytes) -> HeldLeaf:
    """Check the line of leaf `index`. Raises: GputError, or what malformed values raise (see `receipt_keys.named`)."""
    leaf, path = _parsed(index, line)
    if is_receipt(leaf):
        says: HeldReceipt | bytes = _receipt(known, leaf)
    else:
        checked_event(leaf, known.book.session)
        says = leaf
    return HeldLeaf(_placed(known, index, leaf, path), says)


def _placed(known: Known, index: int, leaf: bytes, path: list[bytes]) -> bytes:
    """Hash of the leaf, which is at this place of the signed log."""
    hashed = leaf_hash(leaf)
    try:
        verify_inclusion(hashed, index, known.head.size, path, known.head.root)
    except VerificationFailed as error:
        raise VerificationFailed(
            f"not what the signed log holds at this place ({error.detail})", code="log-mismatch"
        ) from None
    return hashed


def _receipt(known: Known, leaf: bytes) -> HeldReceipt:
    message = parse1(leaf)
    # Not only the key of the visit's own channel counts: an orchestrator that restarts after the training closes the visit in
    # its next life.
    payload = message.verified(known.keys.named_by(message.kid))
    receipt = claim_of(Receipt, payload)
    signer = known.keys.introduced_by(receipt.orchestrator_runtime_data)
    said = claim_of(DeviceStatement, verify1(receipt.statement, signer.statement_key))
    _compare(known, receipt, said, signer)
    return HeldReceipt.of(receipt, said)


def _compare(known: Known, receipt: Receipt, statement: DeviceStatement, signer: Signer) -> None:
    """Receipt, statement, evidence and what the parties signed before say the same."""
    book, said = known.book, known.book.dataset_of(receipt.holder)
    expected: dict[str, tuple[Any, ...]] = {
        "session": (book.session, receipt.session, statement.session),
        "manifest": (book.digest, receipt.manifest),
        "program": (book.manifest.program, statement.program),
        "dataset root": (said.root, receipt.dataset_root, statement.dataset_root),
        "dataset records": (said.records, statement.dataset_records),
        "visit": (receipt.visit, statement.visit),
        "travel mode": (book.manifest.travel_mode, statement.travel_mode),
        "epoch": (receipt.epoch, statement.epoch),
        "holder": (receipt.holder, statement.holder),
        "gpu evidence": (signer.gpu_evidence, receipt.gpu_evidence),
        "device": (signer.device, statement.device),
        "backend": (signer.backend, statement.backend),
        "accumulation": (book.manifest.accumulate is not None, statement.accumulated is not None),
        **expected_of_stop(receipt, book.manifest),
        **expected_of_mixture(receipt, statement, book.manifest),
        **expected_of_end(statement, receipt.outcome, receipt.holder, book.manifest),
        **expected_of_verdict(receipt, statement, book.manifest),
    }
    for name, values in expected.items():
        if values.count(values[0]) != len(values):
            raise VerificationFailed(f"{name} differs", code="mismatch", expected=str(values[0]), got=str(values[1:]))
    check_privacy(receipt, statement, book.manifest, said.records)
    if statement.scrubbed_bytes < statement.length:
        raise VerificationFailed("fewer bytes scrubbed than were written", code="scrub")
    if receipt.fence_epoch <= receipt.epoch:
        raise VerificationFailed("the fence is not after the visit", code="fence")


def _parsed(index: int, line: bytes) -> tuple[bytes, list[bytes]]:
    """A leaf's bytes and path; its line is the only one that says so."""
    item = json_value(line)
    leaf, path = b64decode(item["leaf"], validate=True), [bytes.fromhex(node) for node in item["path"]]
    says: dict[str, Any] = {
        "index": index,
        "kind": "receipt" if is_receipt(leaf) else "event",
        "leaf": b64encode(leaf).decode(),
        "path": [node.hex() for node in path],
    }
    if _line(says) != line:
        differs = next((name for name in (*says, *item) if item.get(name) != says.get(name)), None)
        if differs is None:
            raise VerificationFailed("not in canonical form", code="not-canonical")
        raise VerificationFailed(f"its {differs} is not what its bytes say", code="mismatch",
                                 expected=str(says.get(differs)), got=str(item.get(differs)))  # fmt: skip
    return leaf, path


def _line(says: dict[str, Any]) -> bytes:
    """Canonical JSON (RFC 8785) of a leaf's four fields, whose texts need no escapes: forty times faster than for any value."""
    path = ",".join(f'"{node}"' for node in says["path"])
    return f'{{"index":{says["index"]},"kind":"{says["kind"]}","leaf":"{says["leaf"]}","path":[{path}]}}'.encode()
