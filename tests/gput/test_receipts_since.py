"""When a saved log's session began: keys whose evidence names an earlier time are not believed, and no single holder says when that was."""

from __future__ import annotations

import pytest

from gput.approvals import signed_for
from gput.receipt_folder import APPROVALS, read_lines, read_session
from gput.receipt_keys import believed_keys
from shared.errors import VerificationFailed
from tests.gput.gput_samples import Bundle


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
