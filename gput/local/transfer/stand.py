"""A GPU that takes visit after visit, for `gput bench transfer`: real agent and platform processes, and the orchestrator's part of a visit.

Grants come from the GPU's own draws, over an attested life, as a session's do. Knows no holder and no dataset; trains nothing.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import time
from dataclasses import dataclass
from pathlib import Path

from gput.local.installation import HolderSpec, Installation
from gput.local.job import EMULATED
from orchestrator.gpu_session.bulk import records_of
from orchestrator.gpu_session.life import GpuLife, GpuRoom, Opening, open_spdm
from orchestrator.gpu_session.link import AgentLink
from orchestrator.platform_link import Mux
from shared.attestation.gpu_policy import GpuTrust
from shared.canonical import sha256
from shared.claims.archive import open_archive
from shared.claims.visit import MAX_CHUNK_BYTES, CursorRange, Grant
from shared.crypto.schedule import VisitContext, visit_iv_mask, visit_key
from shared.crypto.signing import PartyKey
from shared.crypto.visit_key import VisitKey
from shared.names import RegionKind, holder_port
from shared.protocol.membership import proof_limit
from shared.service.clock import system_clock, system_entropy
from shared.service.http import Peers
from shared.service.signatures import SignedAuth
from shared.wire.gpu import (
    Configure,
    InitModel,
    InitSession,
    InstallGrant,
    OpenEpoch,
    Scrub,
    SetReady,
    Sweep,
    UploadProgram,
)
from shared.wire.gpu_answers import Configured, EpochOpened, GrantInstalled

GPU, HOLDER, SESSION = "gpu-0", "h000", "s_transfer00000000"
LEASE_S, PAGE = 3600, 4096


@dataclass(frozen=True)
class Approved:
    """What the holder approved: its dataset's root (32 bytes) and number of records, and bytes of a record."""

    root: bytes
    records: int
    record_bytes: int


class Stand:
    """`folder`: for keys, logs and sockets; `program`: archive of the program whose records are moved."""

    def __init__(self, folder: Path, program: Path) -> None:
        self.installation = Installation(folder, [HolderSpec(HOLDER, {})])
        self._program, self._peers = program, Peers(timeout_s=60.0)
        self._life: GpuLife | None = None
        self._region, self._epoch = 0, 0

    @property
    def bounce_socket(self) -> Path:
        """Where the agent gives bounce buffers."""
        return self.installation.folder / "agent-bounce.sock"

    @property
    def agent_url(self) -> str:
        """Where the holder's port is."""
        return self.installation.services["agent"].url

    async def start(self, region_bytes: int) -> None:
        """Processes, attestation, a life, a session with a buffer of so many bytes.

        Raises:
            VerificationFailed: evidence. Unavailable: a process did not start. CommandRefused: the GPU has no room.
        """
        self.installation.prepare()
        await self.installation.start_gpu()
        folder = self.installation.folder
        key = PartyKey.load(folder / "orchestrator" / "identity.pem")
        auth = SignedAuth(key, system_clock, system_entropy)
        self._mux = Mux(self._peers.peer(self.installation.services["platform"].url, "platform", auth=auth), GPU)
        await self._mux.home()
        link = AgentLink(self._peers.peer(self.agent_url, "GPU agent"), GPU)
        facts = await link.facts()
        opening = Opening(1, facts.boot_counter + 1, None)
        spdm = await open_spdm(link, opening, key.public, system_entropy)
        room = GpuRoom(GpuTrust.load(self.installation.trust), True)
        life = GpuLife(
            link, spdm, opening, room, EMULATED, system_clock, system_entropy, facts.certificate
        )  # fmt: skip
        await life.attest(key.public, 0, None)
        await life.open()
        await self._set_up(life, region_bytes)
        self._life = life

    async def _set_up(self, life: GpuLife, region_bytes: int) -> None:
        content = self._program.read_bytes()
        configure = Configure(
            options=open_archive(content).manifest.defaults, total_steps=1,
            buffer_bytes=-(-region_bytes // PAGE) * PAGE, loss_decimals=4, privacy_floor=1,
        )  # fmt: skip
        pieces = records_of(content)
        upload = UploadProgram(length=len(content), records=len(pieces))
        init = InitSession(session=SESSION, manifest=sha256(content).hex())
        regions = (await life.batch([init, upload, configure], pieces)).answer(2, Configured).regions
        self._region = next(region.handle for region in regions if region.kind is RegionKind.DATASET)
        await life.batch([InitModel(source="uploaded"), SetReady()])  # of zeros: nothing is trained
        await life.batch([Sweep()])

    async def granted(self, approved: Approved, cursor: CursorRange) -> tuple[Grant, VisitKey]:
        """A visit's grant, installed, with its key; the GPU is at home yet. Raises: CommandRefused: the GPU's. Unavailable."""
        life, epoch, ours = self._alive(), self._next_epoch(), system_entropy(32)
        recipient = hashlib.sha256(
            b"gput bench transfer"
        ).hexdigest()  # no key is sealed to anybody: holder and orchestrator are one
        grant = Grant(
            session=SESSION, visit=f"v_{secrets.token_hex(8)}", life=life.number, epoch=epoch, holder=HOLDER,
            port=holder_port(HOLDER), region=self._region, cursor=cursor, record_bytes=approved.record_bytes,
            byte_budget=cursor.count * approved.record_bytes + proof_limit(cursor, approved.records),
            dataset_root=approved.root.hex(), dataset_records=approved.records, chunk_bytes=MAX_CHUNK_BYTES,
            recipient=recipient, expires_at=int(time.time()) + LEASE_S,
        )  # fmt: skip
        answers = await life.batch([OpenEpoch(epoch=epoch, entropy=ours), InstallGrant(grant=grant)])
        secret, installed = life.draw(epoch, ours, answers.of(EpochOpened).entropy).reveal(), answers.of(GrantInstalled)
        context = VisitContext(SESSION, epoch, HOLDER, self._region, bytes.fromhex(recipient))
        key = VisitKey(
            visit_key(secret, context), visit_iv_mask(secret, context), installed.engine, installed.channel_counter
        )
        return grant, key

    async def arrive(self) -> None:
        """The GPU is at the holder's port. Raises: Unavailable: the platform."""
        await self._mux.to_holder(HOLDER)

    async def returned(self, grant: Grant) -> str | None:
        """The GPU is home, fenced and scrubbed; the commitment that it published, None: nothing."""
        await self._mux.home()
        life, epoch, ours = self._alive(), self._next_epoch(), system_entropy(32)
        opened = (await life.batch([OpenEpoch(epoch=epoch, entropy=ours, kills=[grant.epoch])])).of(EpochOpened)
        life.draw(epoch, ours, opened.entropy)
        await life.batch([Scrub(region=self._region)])
        return opened.fenced[0].commitment

    def processor_s(self) -> float:
        """What the agent's process has used of the processors."""
        words = Path(f"/proc/{self.installation.services['agent'].pid}/stat").read_text().rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")

    async def stop(self) -> None:
        """End every process."""
        await self._peers.close()
        await self.installation.stop()

    def _alive(self) -> GpuLife:
        if self._life is None:
            raise RuntimeError("the stand was not started")
        return self._life

    def _next_epoch(self) -> int:
        self._epoch += 1
        return self._epoch
