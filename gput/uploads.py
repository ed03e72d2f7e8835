"""Submits a session, after the files that its manifest names by their digest (program, weights, held-out records). Knows no terminal."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gput.files import content as content_of
from shared.canonical import sha256
from shared.claims.archive import open_archive
from shared.claims.new_programs import check_new
from shared.errors import BadRequest, InvalidProgram, NotFound
from shared.service.act_key import check_act_key

if TYPE_CHECKING:
    from gput.api import Api
    from shared.claims.manifest import Manifest

Say = Callable[[str], None]
HELD_OUT, WEIGHTS = "held-out records", "weights to start from"


async def submit(
    client: Api, manifest: Manifest, paths: Sequence[Path], say: Say, *, idempotency_key: str | None = None,
    gpu: str | None = None,
) -> Any:  # fmt: skip
    """Upload what goes along, then submit; the session. Nothing is sent under a key that would be refused.

    Raises: BadRequest `idempotency-key-malformed`. As `upload`, and what the orchestrator answers.
    """
    check_key(idempotency_key)
    await upload(client, manifest, paths, say)
    return await client.submit(manifest, idempotency_key=idempotency_key, gpu=gpu)


def check_key(idempotency_key: str | None) -> None:
    """Raises: BadRequest `idempotency-key-malformed`."""
    if idempotency_key is not None:
        check_act_key(idempotency_key)


async def upload(client: Api, manifest: Manifest, paths: Sequence[Path], say: Say) -> None:
    """Programs go first, then the rest in the order given; weights that lie beside their program need not be named (`with_weights`).

    Raises:
        BadRequest: a file that the manifest does not name (code `not-named`); nothing was sent of it.
    """
    rest = []
    for path in await asyncio.to_thread(with_weights, manifest, paths):
        content = await asyncio.to_thread(content_of, path, "no-file")
        if program_in(content) == manifest.program:
            await client.upload_program(content)
            say(f"uploaded {path}: the program")
        else:
            rest.append((path, content))
    weights = {manifest.initial_weights, await programs_weights(client, manifest.program)} if rest else set()
    for path, content in rest:
        say(f"uploaded {path}: {await _other(client, manifest, weights, path, content)}")


def with_weights(manifest: Manifest, paths: Sequence[Path]) -> list[Path]:
    """These files, and the weights that a program among them starts from, where they lie beside it as `gput program build` left them: an
    archive holds only their digest. Raises: BadRequest `no-file`."""
    found = list(paths)
    for path in paths:
        weights, beside = starts_from(content_of(path, "no-file")), path.with_suffix(".safetensors")
        if (
            manifest.predecessor is None
            and weights
            and (manifest.initial_weights or weights) == weights
            and beside not in found
        ):
            found += [beside] if beside.is_file() and sha256(content_of(beside, "no-file")).hex() == weights else []
    return found


def starts_from(content: bytes) -> str | None:
    """SHA-256 of the weights that these bytes, if they are a program's archive, name."""
    try:
        return getattr(open_archive(content).manifest.initial_weights, "sha256", None)
    except InvalidProgram:
        return None


def unfit(content: bytes) -> InvalidProgram | None:
    """Why these bytes, if they are a program's archive, are none that may be stored anew, by the rules that the orchestrator asks."""
    try:
        archive = open_archive(content)
    except InvalidProgram:
        return None
    try:
        check_new(archive)
    except InvalidProgram as error:
        return error
    return None


async def _other(client: Api, manifest: Manifest, weights: set[str | None], path: Path, content: bytes) -> str:
    digest = sha256(content).hex()
    what = named_as(manifest, weights, digest)
    if what is None:
        raise not_named(path, digest, program_in(content))
    await (client.upload_validation if what == HELD_OUT else client.upload_weights)(content)
    return what


def named_as(manifest: Manifest, weights: Collection[str | None], digest: str) -> str | None:
    """What of a session a file with this SHA-256 is, that is no program; `weights` has those to start from. None: nothing."""
    if manifest.validation is not None and digest == manifest.validation.dataset:
        return HELD_OUT
    return WEIGHTS if digest in weights else None


def not_named(path: Path, digest: str, program: str | None) -> BadRequest:
    """What is said of a file that the manifest does not name. `digest`: its SHA-256; `program`: its digest as one, if it is an archive."""
    named = f"SHA-256 {digest}" if program is None else f"program {program}"
    return BadRequest(
        f"{path} is not what the manifest names ({named})", code="not-named",
        remedy="Put this digest into the manifest as program, initial_weights or validation.dataset.",
    )  # fmt: skip


def program_in(content: bytes) -> str | None:
    """Digest of the program archive that these bytes are, if they are one."""
    try:
        return open_archive(content).digest.hex()
    except InvalidProgram:
        return None


async def programs_weights(client: Api, program: str) -> str | None:
    """SHA-256 of the weights that a stored program starts from, if it names any."""
    try:
        found = (await client.get(f"programs/{program}"))["initial_weights"].get("sha256")
    except NotFound:
        return None
    return None if found is None else str(found)
