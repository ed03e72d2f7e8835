"""The addresses of one peer, in the order in which they are tried. Knows no request.

Several addresses are several orchestrators of one deployment, of which one leads. Whoever has answered last is asked first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import httpx2
from pydantic import AfterValidator

from shared.errors import BadRequest, GputError
from shared.service.answers import Answer
from shared.service.plain_client import Asks

NOT_LEADER = "not-leader"
"""The code of who does nothing because another leads: asking that one instead is safe whatever was asked."""


GATEWAY = frozenset({502, 503, 504})
"""What a proxy answers by itself when the service behind it does not."""


LAST_PORT = 65535
REMEDY = "Write it as http://HOST:PORT or https://HOST."


@dataclass(frozen=True)
class Way:
    """One address, without a slash at its end, and who asks there."""

    url: str
    client: Asks


def addresses(urls: str, name: str) -> Iterator[str]:
    """The addresses in a comma-separated list. Raises: BadRequest: one is not an http or https address, has no port that there is, or
    a query."""
    for part in urls.split(","):
        address = part.strip().rstrip("/")
        try:
            url = httpx2.URL(address)
        except httpx2.InvalidURL:
            url = httpx2.URL("")
        named = bool(url.host) and (
            "%" not in url.host or ":" in url.host
        )  # what no host's name may have is written so by httpx2
        if url.scheme not in ("http", "https") or not named:
            raise BadRequest(f"the address of {name} is not an http address: {address[:100]!r}", remedy=REMEDY)
        if url.query or url.fragment or "?" in address or "#" in address:
            raise BadRequest(f"the address of {name} goes on after its path: {address[:100]!r}", remedy=REMEDY)
        if url.port is not None and not 1 <= url.port <= LAST_PORT:
            raise BadRequest(f"the address of {name} has a port that is none: {address[:100]!r}", remedy=REMEDY)
        yield address


def _checked(urls: str) -> str:
    try:
        list(addresses(urls, "this peer"))
    except BadRequest:  # what was set is not shown: there may be a password in it
        raise ValueError("not an http address: write http://HOST:PORT or https://HOST") from None
    return urls


PeerUrl = Annotated[str, AfterValidator(_checked)]
"""A setting that names a peer: judged at the start, and not when it is first asked."""


class Ways:
    """At least one way; `now` is the one to try."""

    def __init__(self, ways: list[Way]) -> None:
        self._ways, self._at = ways, 0

    def __len__(self) -> int:
        return len(self._ways)

    @property
    def now(self) -> Way:
        """The way that answered last, or the next one to be tried."""
        return self._ways[self._at]

    def failed(self, way: Way) -> None:
        """Try the next one from now on, unless somebody else has found that out already."""
        if way is self.now:
            self._at = (self._at + 1) % len(self._ways)

    def elsewhere(self, error: GputError) -> bool:
        """Whether this refusal only says that another address is the right one."""
        return len(self._ways) > 1 and error.code == NOT_LEADER

    def deserted(self, answer: Answer | httpx2.Response) -> bool:
        """Whether a proxy answered in place of a service that is not there: another address may lead to one.

        The service itself would have sent a problem document. What was asked may have been done all the same.
        """
        own = answer.headers.get("content-type", "").startswith("application/problem+json")
        return len(self._ways) > 1 and answer.status_code in GATEWAY and not own
