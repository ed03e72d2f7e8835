"""What the client's tests pass around: a finished session's views, and a receipts folder that may be spoilt. Knows no test."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gput.receipts import BUNDLE


@dataclass(frozen=True)
class Saved:
    """A session's receipts folder, and the views that the final page is made of."""

    folder: Path
    session: str
    view: dict[str, Any]
    visits: list[dict[str, Any]]
    links: list[dict[str, Any]]


class Bundle:
    """A copy of the receipts folder that a test may spoil."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.value: dict[str, Any] = json.loads((folder / BUNDLE).read_text())

    def write(self) -> Path:
        (self.folder / BUNDLE).write_text(json.dumps(self.value))
        return self.folder
