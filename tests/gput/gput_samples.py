"""What the client's tests pass around: a finished session's views, and a receipts folder that may be spoilt. Knows no test."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gput.receipt_folder import APPROVALS, KEYS, LEAVES, SESSION, parse_line, read_lines, read_session, write

PARTS = {"approvals": APPROVALS, "keys": KEYS, "leaves": LEAVES}


@dataclass(frozen=True)
class Saved:
    """A session's receipts folder, and the views that the final page is made of."""

    folder: Path
    session: str
    view: dict[str, Any]
    visits: list[dict[str, Any]]
    links: list[dict[str, Any]]


class Bundle:
    """A copy of the receipts folder that a test may spoil as a forger would: `write` makes the checksums anew."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        parts = {name: [parse_line(line) for line in read_lines(folder, file)] for name, file in PARTS.items()}
        self.value: dict[str, Any] = {**read_session(folder), **parts}

    def write(self) -> Path:
        (self.folder / SESSION).unlink()  # a forger may name another session, over whose folder nothing else is saved
        write(self.folder, self.value, self.folder)
        return self.folder
