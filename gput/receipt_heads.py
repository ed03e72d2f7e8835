"""What holders remember of a log, held against the whole log: a second history of the session, shown to somebody else, does not fit in.

Knows the log's leaf hashes and events; no file, no service. The same rules decide at an orchestrator's start (design 4.3).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gput.receipt_keys import named
from gput.receipt_known import SignedFor
from shared.attestation.head_statements import verify_head_statement
from shared.errors import BadRequest, VerificationFailed
from shared.protocol.merkle import HASH_BYTES, root
from shared.protocol.session import SessionFact
from shared.wire.visit import Signed


@dataclass(frozen=True)
class Seen:
    """A head that somebody was shown: `size` leaves under `root` (32 bytes)."""

    size: int
    root: bytes

    @classmethod
    def parse(cls, text: str) -> Seen:
        """From SIZE:ROOT, the root in hex. Raises: BadRequest `bad-head`."""
        size, _, digits = text.partition(":")
        try:
            seen = cls(int(size), bytes.fromhex(digits))
        except ValueError:
            seen = None
        if seen is None or seen.size < 0 or len(seen.root) != HASH_BYTES:
            raise BadRequest(
                f"{text!r} is not a log head", code="bad-head",
                remedy="Write SIZE:ROOT, as `log_head` of the holder's GET /v1/requests/SESSION.",
            )  # fmt: skip
        return seen


def check_seen(hashes: Sequence[bytes], seen: Seen, whose: str) -> None:
    """The log is the one that was seen, or has grown from it.

    Raises:
        VerificationFailed: `log-rolled-back`, it has fewer leaves; `log-split-view`, others.
    """
    if seen.size > len(hashes):
        raise VerificationFailed(
            f"{whose} a log of {seen.size} leaves, these are {len(hashes)}: leaves are missing", code="log-rolled-back",
            expected=f"at least {seen.size} leaves", got=str(len(hashes)),
        )  # fmt: skip
    if (own := root(hashes[: seen.size])) != seen.root:
        raise VerificationFailed(
            f"{whose} other leaves among the first {seen.size}: there are two histories of this session",
            code="log-split-view", expected=seen.root.hex(), got=own.hex(),
        )  # fmt: skip


def check_memories(events: Mapping[int, Any], hashes: Sequence[bytes], book: SignedFor, where: str) -> int:
    """Every leaf of a restart was vouched for by a quorum of holders' own signatures over heads of this very log, given for that start; how
    many heads there are. A restart that left no leaf is not seen: lives change within a process, too, so they do not tell of one.

    Raises:
        VerificationFailed: naming the leaf.
    """
    count, asked = 0, dict[str, int]()
    for index, event in events.items():
        with named(f"{where}: leaf {index}"):
            _, _, kind, details = event
            if kind != SessionFact.HEADS_CONFIRMED:
                continue
            _check_new(asked, details["challenge"], index)
            for said in details["statements"]:
                _check_memory(said, details["challenge"], hashes[:index], book)
                count += 1
            whose = {said["holder"] for said in details["statements"]}
            if len(whose) < book.quorum:
                raise VerificationFailed(
                    "too few holders vouched for a restart", code="quorum-lost", expected=f"at least {book.quorum}", got=str(len(whose)),
                )  # fmt: skip
    return count


def _check_new(asked: dict[str, int], challenge: str, index: int) -> None:
    """Each start asks anew. It writes the answers down once more only where it cannot know whether it has: then nothing lies between."""
    if challenge in asked and asked[challenge] != index - 1:
        raise VerificationFailed("the statements of an earlier restart once more", code="head-challenge")
    asked[challenge] = index


def _check_memory(said: Mapping[str, str], challenge: str, before: Sequence[bytes], book: SignedFor) -> None:
    holder = said["holder"]
    if holder not in book.keys:
        raise VerificationFailed(f"{holder} never approved the session", code="not-approved")
    signed = Signed(document=said["document"], signature=said["signature"])
    stated = verify_head_statement(
        signed, key=book.keys[holder], session=book.session, holder=holder, challenge=challenge
    )
    check_seen(before, Seen(stated.size, stated.root), f"{holder} remembered")
    if stated.receipt is not None and stated.receipt not in before:
        raise VerificationFailed(f"{holder} remembered a receipt that is no leaf before this one", code="log-rolled-back",
                                 expected=stated.receipt.hex())  # fmt: skip
