"""Reads the files that a person names: bounded, regular files only, and what each holds. Knows no trust."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from shared.attestation.evidence_files import MAX_FILE_BYTES, pieces_of
from shared.attestation.evidence_pieces import Piece
from shared.errors import BadRequest

STDIN = "-"
MAX_FILES = 64


def read(files: Sequence[Path]) -> list[Piece]:
    """All pieces of evidence in these files, in order.

    Raises:
        BadRequest: `no-file`: absent, unreadable, a folder or a device; `unknown-evidence`, `malformed-…`: as `pieces_of`.
    """
    if len(files) > MAX_FILES:
        raise BadRequest(f"{len(files)} files are too many", code="too-many-files", expected=f"at most {MAX_FILES}")
    return [piece for path in files for piece in pieces_of(content(path), path.name)]


def content(path: Path) -> bytes:
    """A file's bytes, or those of standard input for "-"; at most one more than is accepted. Raises: BadRequest `no-file`."""
    if str(path) == STDIN:
        return sys.stdin.buffer.read(MAX_FILE_BYTES + 1)
    try:
        # A named pipe without a writer would hang, a device never end.
        if not path.is_file():
            what = "is a folder" if path.is_dir() else "is no regular file" if path.exists() else "does not exist"
            raise BadRequest(
                f"{path} {what}", code="no-file", remedy="Name files of evidence; see `gput attest --help`."
            )
        with path.open("rb") as file:
            return file.read(MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "its name is not one"
        raise BadRequest(f"{path} cannot be read: {why}", code="no-file") from None
