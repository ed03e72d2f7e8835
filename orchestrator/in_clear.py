"""What is said in clear by whoever is on the line: it may break a life, as cutting the line does, but it ends no session. Knows no peer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from shared.errors import Conflict, GputError, Unavailable

NOT_OURS: Final = ("signature-stale", "grant-expired", "signature-replayed")
"""What a peer says whose clock is not ours, or to whom the network brought a request twice. Nothing is wrong with the session: it waits."""


@contextmanager
def in_clear(who: str, *, code: str | None = None, counts: tuple[type[GputError], ...] = ()) -> Iterator[None]:
    """A refusal here was perhaps not made by the peer that was asked: a proxy, a service that is just starting, or an attacker says the
    same. The next life asks again; who goes on saying so ends the session after some lives.

    Args:
        who: says it, as the beginning of a sentence.
        code: of what is raised; None: the refusal's own.
        counts: refusals that say more to who asked, and are left as they are.
    Raises:
        Conflict: anything but what tells already that another life may do better.
    """
    try:
        yield
    except (Unavailable, Conflict):
        raise
    except GputError as error:
        if isinstance(error, counts) or (code is None and error.code in NOT_OURS):
            raise
        raise Conflict(f"{who}: {error.detail}", code=code or error.code, remedy=error.remedy) from error
