"""Ids by a prefix that is nobody else's: `s_7f` for `s_7f3kq…`. Sums over names; asks nobody."""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import quote

from shared.errors import BadRequest, NotFound

WHOLE = re.compile(r"[svc]_[a-z2-7]{16}")
SHOWN = 5


def whole(name: str) -> bool:
    """Whether this is an id in full, so that nobody need be asked for the others."""
    return WHOLE.fullmatch(name) is not None


def pick(prefix: str, ids: Iterable[str], kind: str, what: str, remedy: str) -> str:
    """The one id that begins so; its kind (`s_`, `v_`) may be left out.

    Raises:
        NotFound `unknown-WHAT`: none does. BadRequest `ambiguous-id`: several do, or nothing was said.
    """
    known = sorted(set(ids))
    if prefix in known:
        return prefix
    found = [name for name in known if prefix and name.startswith((prefix, kind + prefix))]
    if len(found) == 1:
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
