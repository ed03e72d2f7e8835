"""A page of a list, as services answer with one: judged before anything is read of it. Knows no list and no client."""

from __future__ import annotations

from typing import Any

from gput.answers import unintelligible


def page_of(answer: Any, peer: str) -> tuple[list[Any], str | None]:
    """Its items, and where the next page begins; None after the last.

    Raises:
        Unavailable `peer-unintelligible`: it is no page: another program answers at this address.
    """
    if isinstance(answer, dict):
        items, after = answer.get("items"), answer.get("next")
        if isinstance(items, list) and (after is None or isinstance(after, str)):
            return items, after
    raise unintelligible("answered with something that is no page of a list", peer)
