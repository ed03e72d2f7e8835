"""Whom an answer is about: none is taken for one about another party or session than was asked about. Knows no request.

Whoever ends TLS at the orchestrator's address can answer in its place. What it says of the right one it may make up; but nothing is sent,
written or said to have been done under another's name.
"""

from __future__ import annotations

from typing import Any

from gput.answers import Told, object_of, unintelligible
from gput.ids import joined, whole

PEER = "orchestrator"


def path_of(party: str) -> str:
    """Where a party is found."""
    return f"/v1/{joined('parties', party)}"


def party_of(answer: Any, name: str, key: str) -> Told:
    """The row of this party with this key (fingerprint). Raises: Unavailable `peer-unintelligible`: it is of another, or of none."""
    row = object_of(answer, "name", "role", "key")
    if (row["name"], row["key"]) != (name, key):
        raise unintelligible("answered with another party or key than it was asked about", PEER)
    return row


def session_of(answer: Any, session: str) -> Told:
    """The view of this session. Raises: Unavailable `peer-unintelligible`: it is another's, or of none."""
    view = object_of(answer, "id", "phase")
    if view["id"] != session or not whole(session):
        raise unintelligible("answered with another session than it was asked about", PEER)
    return view
