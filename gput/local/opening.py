"""An installation made ready for a session: services started, holders enrolled, program and weights uploaded. Judges no manifest."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from gput.client import UNATTESTED, AsyncClient
from gput.files import content
from gput.local.installation import Installation
from gput.uploads import not_named, program_in
from shared.canonical import sha256
from shared.claims.archive import Archive
from shared.claims.manifest import Manifest
from shared.claims.program import WeightsFile
from shared.errors import BadRequest


def weights_beside(archive: Archive, program: Path) -> bytes | None:
    """The weights that a program starts from, which lie beside its archive; None where it names none.

    Raises:
        BadRequest `no-weights`: they do not lie there.
    """
    starts, beside = archive.manifest.initial_weights, program.with_suffix(".safetensors")
    if not isinstance(starts, WeightsFile):
        return None
    found = content(beside, "no-weights")
    if sha256(found).hex() != starts.sha256:
        raise BadRequest(
            f"{beside} is not the weights that {program} starts from", code="no-weights",
            remedy="Put that file there; `gput program build` writes both.",
        )  # fmt: skip
    return found


def weights_to_start(manifest: Manifest, archive: Archive, program: Path, given: Path | None) -> bytes | None:
    """The weights that a session starts from: the file that was given, or the program's own beside its archive, as when it is submitted;
    None where they are made from a seed.

    Raises:
        BadRequest: `not-named`: the session would start from others than were given; `no-weights`: there are none.
    """
    own = archive.manifest.initial_weights
    wanted = manifest.initial_weights or (own.sha256 if isinstance(own, WeightsFile) else None)
    if given is not None:
        found = content(given, "no-weights")
        if (digest := sha256(found).hex()) != wanted:
            raise not_named(given, digest, program_in(found))
        return found
    if isinstance(own, WeightsFile) and wanted == own.sha256:
        return weights_beside(archive, program)
    if wanted is not None:
        raise BadRequest(
            "the manifest starts from weights that are not its program's own", code="no-weights", remedy="Name their file by --weights."
        )  # fmt: skip
    return None


async def opened(installation: Installation, archive: bytes, weights: Iterable[bytes]) -> AsyncClient:
    """The owner's client of an installation that is ready for a session; whoever asked closes it, and stops the installation.

    Raises:
        Unavailable: a service did not start.
    """
    await installation.start_base()
    client = AsyncClient(installation.services["orchestrator"].url, installation.owner_key, trust=UNATTESTED)
    try:
        for holder in installation.holders:
            await client.enrol(holder.name, installation.holder_key(holder.name).public)
        # Holders after that: a hundred of them that nobody knows yet would be refused until their address, which is ours too, is held up.
        await installation.start()
        await client.upload_program(archive)
        for one in weights:
            await client.upload_weights(one)
    except BaseException:
        await client.close()
        raise
    return client
