"""Ids by a prefix that is nobody else's: `s_7f` for `s_7f3kq…`. Sums over names; asks nobody."""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import quote

from gput.answers import unintelligible
from shared.errors import BadRequest, NotFound

WHOLE = re.compile(r"[svc]_[a-z2-7]{16}")
SHOWN = 5


def whole(name: str) -> bool:
    """Whether this is an id in full, so that nobody need be asked for the others."""
    return WHOLE.fullmatch(name) is not None


def in_full(session: str) -> str:
    """The session's id as a part of an address. Raises: NotFound `unknown-session`: no session is called so, wherever it is asked for."""
    if not whole(session):
        raise NotFound(f"There is no session {session!r}", code="unknown-session", remedy="Name it by its whole id.")
    return session


def pick(prefix: str, ids: Iterable[str], kind: str, what: str, remedy: str, peer: str = "orchestrator") -> str:
    """The one id that begins so; its kind (`s_`, `v_`) may be left out.

    Args:
        ids: as `peer` lists them. The one that is picked goes into addresses of requests and names of files, so it must be an id.

    Raises:
        NotFound `unknown-WHAT`: none does. BadRequest `ambiguous-id`: several do, or nothing was said. Unavailable `peer-unintelligible`:
            what begins so is no id.
    """
    known = sorted(set(ids))
    found = [name for name in known if prefix and name.startswith((prefix, kind + prefix))]
    if prefix in known:
        found = [prefix]
    if len(found) == 1:
        if not (whole(found[0]) and found[0].startswith(kind)):
            raise unintelligible(f"answered with something that is no id of a {what}", peer)
        return found[0]
    if not prefix or found:
        more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
        raise BadRequest(
            f"{prefix!r} begins {len(found)} {what}s: {', '.join(found[:SHOWN])}{more}" if prefix else f"a {what} without a name",
            code="ambiguous-id", remedy="Say more of it.",
        )  # fmt: skip
    raise NotFound(f"no {what} that you may see begins with {prefix!r}", code=f"unknown-{what}", remedy=remedy)


def joined(*parts: str) -> str:
    """A path of these parts, each of which stays one: whoever names a part chooses no other path by it."""
    return "/".join(quote(part, safe="") for part in parts)
