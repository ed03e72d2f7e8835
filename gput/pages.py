"""A list as services answer with it, page by page: each is judged before anything is read of it. Knows no list and no client."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from gput.answers import Told, object_of, unintelligible


async def pages(ask: Callable[[str | None], Awaitable[Any]], peer: str) -> list[Told]:
    """All items of a list.

    Args:
        ask: gives the answer with the page that begins at this cursor; None: the first. A page may be empty, and not the last: it has what
            the caller may see of it.

    Raises:
        Unavailable `peer-unintelligible`: it is no page, another program answers at this address; or the list leads back to a page that was
            read, and has no end. What `ask` raises.
    """
    found: list[Told] = []
    cursor: str | None = None
    read: set[str] = set()
    while True:
        items, cursor = _page(await ask(cursor), peer)
        found += items
        if cursor is None:
            return found
        if cursor in read:
            raise unintelligible("answered with a list that has no end: it leads back to a page that was read", peer)
        read.add(cursor)


def _page(answer: Any, peer: str) -> tuple[list[Told], str | None]:
    """Its items, and where the next page begins; None after the last."""
    if isinstance(answer, dict):
        items, after = answer.get("items"), answer.get("next")
        if isinstance(items, list) and (after is None or isinstance(after, str)):
            return [object_of(item, peer=peer) for item in items], after
    raise unintelligible("answered with something that is no page of a list", peer)
