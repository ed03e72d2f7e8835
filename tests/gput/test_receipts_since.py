"""When a saved log's session began: keys whose evidence names an earlier time are not believed, and no single holder says when that was."""

from __future__ import annotations

import dataclasses

import pytest

from gput.approvals import signed_for
from gput.receipt_folder import APPROVALS, read_lines, read_session
from gput.receipt_keys import believed_keys
from shared.errors import VerificationFailed
from tests.gput.gput_samples import Bundle, Saved


def test_no_key_is_older_than_its_session(bundle: Bundle) -> None:
    """Its evidence is judged by the time that it names itself: a stolen machine's key names one before the machine was revoked."""
    folder = bundle.write()
    book = signed_for(read_session(folder), read_lines(folder, APPROVALS))
    assert len(book.approved_at) == len(book.approved)
    assert believed_keys(folder, book).signers
    later = {holder: at + 2 * 60 + 1 for holder, at in book.approved_at.items()}
    book.approved_at.update(dict.fromkeys(list(later)[:1], 0.0))
    assert believed_keys(folder, book).signers, "one whose clock is slow"
    book.approved_at.update(later)
    with pytest.raises(VerificationFailed, match="key 0: evidence names a time before its session") as caught:
        believed_keys(folder, book)
    assert caught.value.code == "introduction-backdated"


@pytest.mark.parametrize(
    ("quorum", "times", "since"),
    [
        (None, (30, 10, 20), 20), (None, (30, 0, 20), 20), (None, (10, 10**9, 20), 20), (2, (30, 10, 20), 10), (1, (30, 10, 20), 10),
        (None, (), 0),
    ],
)  # fmt: skip
def test_no_single_holders_word_says_when_a_session_began(
    saved: Saved, quorum: int | None, times: tuple[int, ...], since: float
) -> None:
    """One that is in league with the orchestrator had put it back to 1970, and with it what its keys' evidence is judged by."""
    book = signed_for(read_session(saved.folder), read_lines(saved.folder, APPROVALS))
    manifest = book.manifest.model_copy(update={"quorum": quorum})
    approved_at = {f"h{n}": float(at) for n, at in enumerate(times)}
    assert dataclasses.replace(book, manifest=manifest, approved_at=approved_at).since == since
