"""An installation made ready for a session: services started, holders enrolled, program and weights uploaded. Knows no manifest."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from gput.client import UNATTESTED, AsyncClient
from gput.files import content
from gput.local.installation import Installation
from shared.claims.archive import Archive
from shared.claims.program import WeightsFile


def weights_beside(archive: Archive, program: Path) -> bytes | None:
    """The weights that a program starts from, which lie beside its archive; None where it names none.

    Raises:
        BadRequest `no-weights`: they do not lie there.
    """
    if not isinstance(archive.manifest.initial_weights, WeightsFile):
        return None
    return content(program.with_suffix(".safetensors"), "no-weights")


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
