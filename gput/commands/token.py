"""`gput token`: bearer tokens, made, rotated and revoked. Knows the holder's API and the orchestrator's file of readers, no session."""

from __future__ import annotations

import asyncio
import os
import re
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import httpx2
import typer

from gput.answers import object_of
from gput.commands.connection import NoInputOption, YesOption, confirm
from gput.commands.manners import Commands, FormatOption
from gput.commands.operator import HOLDER_TIMEOUT_S, SERVICE, Bearer, HolderUrl, Token, read_token
from gput.files import distinct, place_for, written
from gput.output import Format, emit, say
from shared.claims.free_text import unseen
from shared.crypto.private_file import keep_owner, replace_private, write_private
from shared.errors import BadRequest, Conflict, GputError, NotAuthenticated, NotFound, NotPermitted, Unavailable
from shared.service.http import Peers
from shared.service.reader_tokens import Reader, changing, read_readers, token_digest, write_readers

app = Commands("Bearer tokens.\n\nExample:  gput token rotate")
TOKEN_BYTES = 32
_ROTATED = re.compile(rf"[0-9a-f]{{{2 * TOKEN_BYTES}}}")
"""What a rotation writes."""
Readers = Annotated[Path, typer.Option("--file", help="the orchestrator's setting reader_tokens")]
Person = Annotated[str, typer.Argument(help="whose token")]


@app.command()
def rotate(
    holder_url: HolderUrl, token: Token,
    whose: Annotated[Literal["operator", "auditor"], typer.Option("--of", help="which of the holder's tokens")] = "operator",
    output: Annotated[Path | None, typer.Option("-o", "--output", help="where it goes; default: the old one's place")] = None,
) -> None:  # fmt: skip
    """Put a new token in the place of your holder service's operator.token or auditor.token. The old one is refused from then on.

    Sessions go on: nothing of theirs hangs on a token. Interrupted, or without an answer: the same command again.

    Example:  gput token rotate
    Example:  gput token rotate --of auditor
    """
    target = output or (token if whose == "operator" else token.with_name("auditor.token"))
    place_for(target)
    draft = _draft(target)
    distinct([draft] if whose == "operator" else [target, draft], [token])
    if output is not None and not _may_replace(target, lambda found: _ROTATED.fullmatch(found) is not None):
        raise _kept(target)
    if draft.exists() and asyncio.run(_counts(holder_url, draft)):
        say(f"an earlier rotation was interrupted; its token, {draft}, counts")
    else:
        draft.unlink(missing_ok=True)
        write_private(draft, f"{secrets.token_hex(TOKEN_BYTES)}\n".encode())
        _put(holder_url, token, whose, draft)
    keep_owner(draft, target)
    os.replace(draft, target)
    say(f"{target} holds the {whose}'s new token; the old one is refused")


async def _counts(url: str, token: Path) -> bool:
    async with Peers(timeout_s=HOLDER_TIMEOUT_S) as peers:
        try:
            answer = await peers.peer(url, SERVICE, auth=Bearer(token)).get_json("/v1/identity")
        except NotAuthenticated:
            return False
    object_of(answer, "name", "fingerprint", peer=SERVICE)  # else another program answers, and takes any token
    return True


def _put(url: str, token: Path, whose: str, draft: Path) -> None:
    async def call() -> None:
        async with Peers(timeout_s=HOLDER_TIMEOUT_S) as peers:
            peer = peers.peer(url, SERVICE, auth=Bearer(token))
            answer = await peer.request("PUT", f"/v1/tokens/{whose}", json={"token": read_token(draft)}, attempts=1)
            if answer.status_code != httpx2.codes.NO_CONTENT:
                raise peer.unintelligible(f"status {answer.status_code}, which says of no token that it counts")

    try:
        asyncio.run(call())
    except Unavailable as error:
        # It may have arrived: the new token must not be lost.
        raise Unavailable(
            f"{error.detail}; whether the new token counts is not known", code=error.code,
            remedy=f"Run the same command again; the new token is in {draft}.",
        ) from None  # fmt: skip
    except (BadRequest, Conflict, NotAuthenticated, NotPermitted, NotFound):
        draft.unlink()  # refused for certain; whatever else ends this, Ctrl-C too, leaves a token that may count
        raise


@app.command()
def issue(
    name: Person, file: Readers,
    role: Annotated[Literal["auditor", "owner"], typer.Option(help="an owner's reader sees losses, too")] = "auditor",
    output: Annotated[Path | None, typer.Option("-o", "--output", help="where it goes; default: NAME.token")] = None,
    replace: Annotated[bool, typer.Option("--replace", help="in the place of NAME's, which is refused from then on")] = False,
) -> None:  # fmt: skip
    """Make a person's read-only token for the orchestrator and its dashboard. It counts at once, without a restart.

    Run it where the orchestrator's settings are. The file knows the token by its SHA-256 only; the token goes to the person.

    Example:  gput token issue maria --file reader-tokens.json
    Example:  gput token issue maria --file reader-tokens.json --replace
    """
    if not name.strip() or (hidden := unseen(name)):
        what = f"holds what cannot be seen: {hidden}" if name.strip() else "is empty"
        raise BadRequest(f"the name {what}", code="bad-name", remedy="Name the person whom the token is for.")
    target = output or Path(f"{name}.token")
    place_for(target)
    distinct([target, _draft(target)], [file])
    with changing(file) as readers:
        others = {digest: reader for digest, reader in readers.items() if reader.name != name}
        if len(others) < len(readers) and not replace:
            raise Conflict(f"{name} has a token", code="token-exists", remedy="--replace puts a new one in its place.")
        theirs = readers.keys() - others.keys()
        if not _may_replace(target, lambda found: replace and token_digest(found) in theirs):
            raise _kept(target)
        token = secrets.token_urlsafe(TOKEN_BYTES)
        _count(token, target, file, {**others, token_digest(token): Reader(name=name, role=role)})
    say(f"{target} holds {name}'s token (keep it secret)" + (", and the old one is refused" if theirs else ""))


def _draft(target: Path) -> Path:
    """Where the next token waits until it counts."""
    return target.with_name(f"{target.name}.next")


def _may_replace(target: Path, known: Callable[[str], bool]) -> bool:
    """Whether nothing is lost by another token in its place: nothing is there, or a file with a token that is `known`."""
    with written(target):
        return not target.exists() or (target.is_file() and known(target.read_text(errors="replace").strip()))


def _kept(target: Path) -> Conflict:
    return Conflict(
        f"{target} exists already, is no token that is replaced, and is kept", code="token-exists",
        remedy="Name another file with -o, or move that one away.",
    )  # fmt: skip


def _count(token: str, target: Path, file: Path, readers: dict[str, Reader]) -> None:
    """Have a token count, and put it into its file: the one that counted until now is there until this one does, which is never lost."""
    draft = _draft(target)
    with written(target):
        replace_private(draft, f"{token}\n".encode())
    try:
        with written(target):
            keep_owner(draft, target)
        write_readers(file, readers)
    except GputError:
        draft.unlink()
        raise
    with written(target):
        os.replace(draft, target)


@app.command()
def revoke(name: Person, file: Readers, yes: YesOption = False, no_input: NoInputOption = False) -> None:
    """Refuse a person's token from now on, without a restart.

    Example:  gput token revoke maria --file reader-tokens.json --yes
    """
    _without(name, read_readers(file), file)  # who has none is not asked after
    confirm(f"Refuse {name}'s token from now on?", yes, no_input)
    with changing(file) as readers:
        write_readers(file, _without(name, readers, file))
    say(f"{name}'s token is refused from now on")


def _without(name: str, readers: dict[str, Reader], file: Path) -> dict[str, Reader]:
    left = {digest: reader for digest, reader in readers.items() if reader.name != name}
    if len(left) == len(readers):
        raise NotFound(
            f"{name} has no token in {file}", code="no-such-reader", remedy="`gput token list` shows who has."
        )
    return left


@app.command("list")
def list_(file: Readers, fmt: FormatOption = Format.TABLE) -> None:
    """Who has a read-only token, as whom, and by which digest the file knows it.

    Example:  gput token list --file reader-tokens.json
    """
    if not file.exists():
        raise BadRequest(
            f"cannot read {file}: no such file", code="no-token", remedy="Name the file of the orchestrator's setting reader_tokens."
        )  # fmt: skip
    rows: list[dict[str, Any]] = [
        {"name": reader.name, "role": reader.role, "sha256": digest} for digest, reader in read_readers(file).items()
    ]
    emit(sorted(rows, key=lambda row: str(row["name"])), ("name", "role", "sha256"), fmt)
