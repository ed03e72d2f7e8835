"""The demo's job: plan, program, held-out records, manifest; submit it, find it again, collect its result. Knows no process.

The same job runs on a local installation (`gput demo`) and against the compose file's services.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, Self

from gput.client import AsyncClient
from gput.held_out import pack
from gput.tours import Tours
from shared.canonical import sha256
from shared.claims.archive import Archive, open_archive
from shared.claims.manifest import Acceptance, EvidencePolicy, Manifest, RosterEntry, Validation
from shared.claims.training import AdamW, Schedule, TrainingOptions
from shared.crypto.signing import fingerprint
from shared.errors import BadRequest, Unavailable
from shared.names import TravelMode

EMULATED = EvidencePolicy(roots=("EMULATED",))
Say = Callable[[str], None]


@dataclass(frozen=True)
class Plan:
    """What the demo trains. The defaults finish within 90 s on two cores."""

    rounds: int = 6
    steps: int = 12
    batch: int = 16
    layers: int = 6
    heads: int = 4
    width: int = 128
    context: int = 64
    seed: int = 1
    validation_records: int = 256
    mode: TravelMode = TravelMode.SCOPED
    tours: Tours | None = None

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """The usual plan but for what is given; where a round is one step, shorter visits of many more rounds.

        Raises:
            BadRequest: tours in a travel mode in which a holder could read what those before it left.
        """
        if given.get("tours") and given.get("mode") is TravelMode.PAPER:
            raise BadRequest(
                "there are no tours in travel mode paper", code="tours-mode", remedy="Say --mode scoped or direct."
            )
        return cls(**{**(ONE_STEP_A_ROUND if given.get("tours") is Tours.ACCUMULATE else {}), **given})

    @property
    def collect(self) -> Literal["visit", "tour"]:
        """The manifest's."""
        return "tour" if self.tours == Tours.COLLECT else "visit"

    @property
    def accumulate(self) -> Literal["tour"] | None:
        """The manifest's."""
        return "tour" if self.tours == Tours.ACCUMULATE else None

    @property
    def acceptance(self) -> Acceptance:
        """The usual one; gradients of single batches, which nothing has clipped, were seen to differ far more than updates do."""
        return Acceptance() if self.accumulate is None else Acceptance(max_update_ratio=50.0)

    @property
    def warmup(self) -> int:
        """Steps of the optimiser, the first of so many."""
        return self.steps if self.accumulate is None else max(1, self.rounds // 4)

    @property
    def program_options(self) -> dict[str, str]:
        """Options of the built-in GPT-2."""
        sizes = {"layers": self.layers, "heads": self.heads, "width": self.width, "context": self.context, "vocab": 256}
        return {name: str(value) for name, value in sizes.items()}


ONE_STEP_A_ROUND = {"rounds": 48, "steps": 1}
"""With gradients accumulated six rounds would be six steps, and train nothing."""


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
        return self.folder / "demo.json"

    @property
    def program(self) -> Path:
        """The training program's archive."""
        return self.folder / "gpt2.gput"

    @property
    def held_out(self) -> Path:
        """The held-out records."""
        return self.folder / "held-out.records"

    async def build(self, held_out: Path) -> Archive:
        """Build program and held-out records, unless they are there."""
        if not self.program.exists():
            self.say("building the training program (torch.export) …")
            options = [f"--option={name}={value}" for name, value in self.plan.program_options.items()]
            partial = self.program.with_suffix(".part")  # an interrupted build must not look like a program
            await run_module("gput", "program", "build", "gpt2", "-o", str(partial), *options)
            partial.replace(self.program)
        archive = open_archive(self.program.read_bytes())
        if not self.held_out.exists():
            await asyncio.to_thread(self._write_held_out, held_out, archive)
        return archive

    def _write_held_out(self, folder: Path, archive: Archive) -> None:
        records, _ = pack(folder, archive.manifest, self.plan.validation_records)
        _write(self.held_out, records)

    def manifest(self, archive: Archive) -> Manifest:
        """What the holders are asked to approve."""
        plan, records = self.plan, self.held_out.read_bytes()
        record_bytes = archive.manifest.records.record_bytes
        visit_bytes = plan.steps * plan.batch * record_bytes
        roster = (RosterEntry(holder=n, key=fingerprint(k), evidence=EMULATED) for n, k in self.holders.items())
        return Manifest(
            name="demo: one byte-level GPT-2 on three private corpora",
            program=archive.digest.hex(),
            training=self._training(),
            roster=tuple(roster),
            gpu_evidence=EMULATED,
            orchestrator_evidence=EMULATED,
            rounds=plan.rounds,
            steps_per_visit=plan.steps,
            record_order="shuffled",
            travel_mode=self.plan.mode,
            collect=plan.collect,
            accumulate=plan.accumulate,
            acceptance=plan.acceptance,
            buffer_bytes=max(4096, -(-visit_bytes // 4096) * 4096),
            privacy_floor=plan.batch,
            validation=Validation(
                dataset=sha256(records).hex(), records=len(records) // record_bytes, every_visits=len(self.holders)
            ),
        )

    def _training(self) -> TrainingOptions:
        return TrainingOptions(
            optimizer=AdamW(lr=2e-3, weight_decay=0.05, betas=(0.9, 0.95)),
            schedule=Schedule(kind="cosine", warmup_steps=self.plan.warmup, final_factor=0.1),
            grad_clip_norm=1.0,
            batch_size=self.plan.batch,
            seed=self.plan.seed,
            threads=2,
        )

    async def submit_or_resume(self, client: AsyncClient, archive: Archive) -> str:
        """The session's id: a new one, or the one this folder started before."""
        if self.state.exists():
            return await self._resume(client)
        for name, key in self.holders.items():
            await client.enrol(name, key)
        await client.upload_program(self.program.read_bytes())
        await client.upload_validation(self.held_out.read_bytes())
        manifest = self.manifest(archive)
        # The same manifest again is the same session: an interruption right after the call submits nothing twice.
        view = await client.submit(manifest, idempotency_key=f"demo-{sha256(manifest.canonical()).hex()}")
        state = {"session": view["id"], "plan": asdict(self.plan)}
        _write(self.state, json.dumps(state, indent=2).encode() + b"\n")
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
        checked = json.loads(await run_module("gput.local.plain_check", str(self.folder)))
        visits = await client.items(f"sessions/{session}/visits")
        losses = await client.items(f"sessions/{session}/losses")
        return {"view": view, "visits": visits, "losses": losses, "links": [], "receipts": receipts, "check": checked}


def _write(path: Path, content: bytes) -> None:
    """The whole file or none."""
    partial = path.with_name(path.name + ".part")
    partial.write_bytes(content)
    partial.replace(path)


def policy_text(plan: Plan, programs: str) -> str:
    """A holder's local policy file for the demo's job; `programs` is the line of its [programs] table."""
    return f"""# What this holder approves without asking its operator; everything else is refused.
dataset = "corpus"
[programs]
{programs}
[limits]
max_rounds = {max(1000, plan.rounds)}
min_privacy_floor = {plan.batch}
[output]
release_to = ["owner"]
[session]
min_parties = 3
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
