"""A demo's job: program, held-out records, manifest; submit it, find it again, collect its result. Knows no service's process.

The same job runs on a local installation (`gput demo`) and against the compose file's services.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gput.client import AsyncClient
from gput.held_out import pack
from gput.local.demos.catalogue import STATE, keep
from gput.local.demos.plan import Plan
from shared.canonical import sha256
from shared.claims.archive import Archive, open_archive
from shared.claims.manifest import EvidencePolicy, Manifest, RosterEntry, Validation
from shared.crypto.signing import fingerprint
from shared.errors import Unavailable
from shared.names import TravelMode

EMULATED = EvidencePolicy(roots=("EMULATED",))
Say = Callable[[str], None]


class Job:
    """One job in one folder.

    Args:
        holders: each holder's raw Ed25519 public key (32 bytes), by name.
    """

    def __init__(self, folder: Path, plan: Plan, holders: Mapping[str, bytes], say: Say) -> None:
        self.folder, self.plan, self.holders, self.say = folder.absolute(), plan, holders, say

    @property
    def state(self) -> Path:
        """Which session this folder runs, and by which plan."""
        return self.folder / STATE

    @property
    def program(self) -> Path:
        """The training program's archive."""
        return self.folder / self.plan.program

    @property
    def weights(self) -> Path:
        """The weights that the program starts from; absent if it makes its own."""
        return self.program.with_suffix(".safetensors")

    @property
    def held_out(self) -> Path:
        """The held-out records."""
        return self.folder / "held-out.records"

    async def build(self, held_out: Path) -> Archive:
        """Build program and held-out records, unless they are there."""
        if not self.program.exists():
            self.say("building the training program (torch.export) …")
            partial = self.program.with_suffix(".part")  # an interrupted build must not look like a program
            for module, arguments in self.plan.building(partial):
                await run_module(module, *arguments)
            partial.replace(self.program)
        archive = open_archive(self.program.read_bytes())
        if not self.held_out.exists():
            await asyncio.to_thread(self._write_held_out, held_out, archive)
        return archive

    def _write_held_out(self, data: Path, archive: Archive) -> None:
        records, _ = pack(data, archive.manifest, self.plan.validation_records)
        _write(self.held_out, records)

    def manifest(self, archive: Archive) -> Manifest:
        """What the holders are asked to approve."""
        plan, records = self.plan, self.held_out.read_bytes()
        record_bytes = archive.manifest.records.record_bytes
        visit_bytes = plan.steps * plan.batch * record_bytes
        roster = (RosterEntry(holder=n, key=fingerprint(k), evidence=EMULATED) for n, k in self.holders.items())
        return Manifest(
            name=plan.title,
            program=archive.digest.hex(),
            training=plan.training(),
            roster=tuple(roster),
            gpu_evidence=EMULATED,
            orchestrator_evidence=EMULATED,
            rounds=plan.rounds,
            steps_per_visit=plan.steps,
            record_order="shuffled",
            travel_mode=plan.mode,
            collect=plan.collect,
            accumulate=plan.accumulate,
            acceptance=plan.acceptance,
            buffer_bytes=max(4096, -(-visit_bytes // 4096) * 4096),
            privacy_floor=plan.batch,
            validation=Validation(
                dataset=sha256(records).hex(), records=len(records) // record_bytes, every_visits=len(self.holders)
            ),
        )

    async def submit_or_resume(self, client: AsyncClient, archive: Archive) -> str:
        """The session's id: a new one, or the one this folder started before."""
        if self.state.exists():
            return await self._resume(client)
        for name, key in self.holders.items():
            await client.enrol(name, key)
        await client.upload_program(self.program.read_bytes())
        if self.weights.exists():
            await client.upload_weights(self.weights.read_bytes())
        await client.upload_validation(self.held_out.read_bytes())
        manifest = self.manifest(archive)
        # The same manifest again is the same session: an interruption right after the call submits nothing twice.
        view = await client.submit(manifest, idempotency_key=f"demo-{sha256(manifest.canonical()).hex()}")
        _write(self.state, keep(str(view["id"]), plan=self.plan))
        return str(view["id"])

    async def _resume(self, client: AsyncClient) -> str:
        session = str(json.loads(self.state.read_text())["session"])
        if (await client.session(session))["phase"] == "PAUSED":
            await client.act(session, "resume")
        return session

    async def collect(self, client: AsyncClient, session: str, trust: Path) -> dict[str, Any]:
        """Fetch model and receipts, verify both, and gather what the final page shows.

        Raises:
            GputError: a receipt or the model does not verify.
        """
        from gput.receipts import save, verify

        self.say("fetching model and receipts, verifying both …")
        view = await client.session(session)
        await client.model(session, self.folder / "model.safetensors")
        await save(client, session, self.folder / "receipts", trust)
        receipts = await asyncio.to_thread(verify, self.folder / "receipts")
        self.say("loading the model into plain PyTorch, which computes its held-out loss …")
        checked = json.loads(await run_module(self.plan.judge, str(self.folder)))
        visits = await client.items(f"sessions/{session}/visits")
        losses = await client.items(f"sessions/{session}/losses")
        return {"view": view, "visits": visits, "losses": losses, "links": [], "receipts": receipts, "check": checked}


def _write(path: Path, content: bytes) -> None:
    """The whole file or none."""
    partial = path.with_name(path.name + ".part")
    partial.write_bytes(content)
    partial.replace(path)


def policy_text(plan: Plan, programs: str, parties: int | None = None) -> str:
    """A holder's local policy file for a demo's job. `programs`: the line of its [programs] table; `parties`: all of the plan's if None."""
    least = len(plan.holders) if parties is None else parties
    return policy_file(plan.dataset, programs, rounds=plan.rounds, floor=plan.batch, parties=least, mode=plan.mode)


def policy_file(
    dataset: str, programs: str, *, rounds: int, floor: int, parties: int, mode: TravelMode, shares: int | None = None,
    release_to: Sequence[str] = ("owner",), continuation: bool = False,
) -> str:  # fmt: skip
    """A holder's local policy file for a job on emulated hardware.

    Args:
        programs: the line of its [programs] table.
        rounds, floor: the job's rounds and privacy floor; of rounds a thousand are always allowed.
        parties: holders of a session at least that must take part.
        mode: how the GPU travels; `paper` is approved where it is said only.
        shares: holders at least whose shares give its key away; as many as parties if None.
        continuation: whether another session may go on with the model without this holder; what a manifest asks by `remaining`.
    """
    return f"""# What this holder approves without asking its operator; everything else is refused.
dataset = {json.dumps(dataset)}
[programs]
{programs}
[limits]
max_rounds = {max(1000, rounds)}
min_privacy_floor = {floor}
[output]
release_to = {json.dumps(list(release_to))}
[session]
travel_modes = {json.dumps([mode])}
min_parties = {parties}
min_recovery_shares = {parties if shares is None else shares}
continuation = {json.dumps(continuation)}
[evidence]
allow_emulated = true
"""


async def run_module(module: str, *arguments: str) -> str:
    """Run a module in a child process (it may need PyTorch, which this process must not import); what it printed.

    Raises:
        Unavailable: it failed; the message carries its last words.
    """
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        out, err = await child.communicate()
    except asyncio.CancelledError:
        child.kill()
        await child.wait()
        raise
    if child.returncode:
        words = err.decode(errors="replace").strip().splitlines()[-8:]
        raise Unavailable(f"`python -m {module}` failed: " + "\n    ".join(words), code="step-failed")
    return out.decode()
