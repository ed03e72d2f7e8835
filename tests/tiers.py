"""Which tests `make test` leaves to `make test-full`: those that tests/later.txt names. Knows names, no test.

Files mark their own long parameters themselves.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

TABLE: Final = Path(__file__).with_name("later.txt")
LATER: Final = tuple(
    line for line in TABLE.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")
)


def later(nodeid: str) -> bool:
    """Whether this test belongs to the slow tier by the table."""
    return nodeid.startswith(LATER)
