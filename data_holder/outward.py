"""What of an error others may read. An error names what its operator needs: datasets, files, rows, paths; none of it is anybody else's.

Whoever is told gets the code and the one sentence that explains it everywhere. Knows no wire.
"""

from __future__ import annotations

from typing import Final

from shared.errors import ConfigurationError, GputError, InvalidData, NotFound
from shared.explanations import explain

OWN_TROUBLE: Final = ("disk-full", "disk-unusable", "database-unreachable")
"""Codes whose details name this holder's own paths and addresses."""
_OF_DATA: Final = ("data-", "dataset-")
_OF_OWN_THINGS: Final = (InvalidData, NotFound, ConfigurationError)
"""Errors that are about what this holder has, or has not, whatever their codes: these are told of by their kind."""


def outward(error: GputError) -> str:
    """The error's detail where it is of the manifest, the offer or a peer; else the sentence that explains its code."""
    if isinstance(error, _OF_OWN_THINGS) or error.code.startswith(_OF_DATA) or error.code in OWN_TROUBLE:
        return sentence(error.code)
    return error.detail


def sentence(code: str) -> str:
    """What the code means, in words that are the same for everybody."""
    known = explain(code)
    return "The data holder cannot do it; its operator can see why." if known is None else known.means
