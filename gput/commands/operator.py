"""What commands for a holder's operator share: its address, its token, one call at a time. Knows no command and no route."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Coroutine, Generator
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import httpx2
import typer

from gput.answers import no_dry_run, object_of, read_as
from gput.pages import pages
from shared.errors import BadRequest, NotFound
from shared.service.http import Peers
from shared.wire.dry_run import Verdict

HolderUrl = Annotated[str, typer.Option("--holder-url", envvar="GPUT_HOLDER_URL", help="your own holder service")]
Token = Annotated[Path, typer.Option("--token", envvar="GPUT_HOLDER_TOKEN", help="its operator.token file")]
HOLDER_TIMEOUT_S = 30.0
HASHING_TIMEOUT_S = 7 * 86_400.0
"""For an approval, which reads and hashes the whole dataset: whoever gave up earlier could only begin it a second time."""
PAGE = 200
SERVICE = "holder service"
REMEDY = "It is the file operator.token in the holder's data folder."


class Bearer(httpx2.Auth):
    """A token file's content on every request. It has no repr of the token. Raises: BadRequest `no-token`."""

    def __init__(self, token: Path) -> None:
        self._header = f"Bearer {read_token(token)}"

    def auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response, None]:
        request.headers["authorization"] = self._header
        yield request


def read_token(token: Path) -> str:
    """The one word in a token file. Raises: BadRequest `no-token`."""
    try:
        words = token.read_text().split()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not text"
        raise BadRequest(f"cannot read {token}: {why}", code="no-token", remedy=REMEDY) from None
    if len(words) != 1 or not words[0].isascii():
        raise BadRequest(f"{token} is no token file", code="no-token", remedy=REMEDY)
    return words[0]


def ask(
    method: str, path: str, url: str, token: Path, body: Any = None, *names: str, timeout_s: float = HOLDER_TIMEOUT_S
) -> Any:
    """One call of the operator's API; the object that is answered, with these fields, waited for `timeout_s`.

    Raises:
        BadRequest: `no-token`. Unavailable: no answer, or `peer-unintelligible`. Or as the service answered.
    """
    return object_of(asyncio.run(_call(method, path, url, token, body, timeout_s)), *names, peer=SERVICE)


def beforehand(path: str, url: str, token: Path, body: Any) -> Verdict:
    """What the service says beforehand to an act at this path (docs/adr/0052).

    Raises:
        ConfigurationError: `no-dry-run`: it has no such path. As `ask`, and as the act would be refused.
    """
    try:
        return read_as(Verdict, ask("POST", f"dry-run/{path}", url, token, body), SERVICE)
    except NotFound:
        if any(
            known.startswith("/v1/dry-run/") for known in ask("GET", "openapi.json", url, token, None, "paths")["paths"]
        ):
            raise  # a dataset that is not there has the code of a path that is not
        raise no_dry_run(SERVICE) from None


def every(path: str, url: str, token: Path) -> list[Any]:
    """All items of a list of the operator's API, page by page. Raises: as `ask`."""

    def page(after: str | None) -> Coroutine[Any, Any, Any]:
        place = f"{path}?limit={PAGE}" + (f"&after={quote(after, safe='')}" if after is not None else "")
        return _call("GET", place, url, token)

    return [*asyncio.run(pages(page, SERVICE))]


async def _call(
    method: str, path: str, url: str, token: Path, body: Any = None, timeout_s: float = HOLDER_TIMEOUT_S
) -> Any:
    async with Peers(timeout_s=HOLDER_TIMEOUT_S) as peers:
        peer = peers.peer(url, SERVICE, auth=Bearer(token))
        if method == "GET":
            return await peer.get_json(f"/v1/{path}")
        if method == "PUT":
            return await peer.put_json(f"/v1/{path}", body)
        # With a key the call may be repeated when its connection breaks: the holder decides once.
        return await peer.post_json(
            f"/v1/{path}", body, idempotency_key=f"decide-{secrets.token_hex(16)}", timeout_s=timeout_s
        )
