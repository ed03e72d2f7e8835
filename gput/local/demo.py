"""The demo's plan: who takes part, on what data, with which program; and its steps up to the running session. Knows no terminal."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gput.client import AsyncClient
from gput.local import corpus
from gput.local.installation import HolderSpec, Installation
from shared.canonical import sha256
from shared.claims.archive import Archive, open_archive
from shared.claims.manifest import EvidencePolicy, Manifest, RosterEntry, Validation
from shared.claims.training import AdamW, Schedule, TrainingOptions
from shared.crypto.signing import fingerprint
from shared.errors import ConfigurationError, GputError, Unavailable

HOLDERS = ("north", "city", "harbour")
EMULATED = EvidencePolicy(roots=("EMULATED",))
Say = Callable[[str], None]


@dataclass(frozen=True)
class Plan:
    """What the demo trains. The defaults finish within 90 s on two cores."""

    rounds: int = 8
    steps: int = 12
    batch: int = 16
    layers: int = 6
    heads: int = 4
    width: int = 128
    context: int = 64
    seed: int = 1
    validation_records: int = 256

    @property
    def program_options(self) -> dict[str, str]:
        """Options of the built-in GPT-2."""
        sizes = {"layers": self.layers, "heads": self.heads, "width": self.width, "context": self.context, "vocab": 256}
        return {name: str(value) for name, value in sizes.items()}


class Demo:
    """One demo in one folder; `--resume` makes a new one over the same folder."""

    def __init__(self, folder: Path, plan: Plan, say: Say) -> None:
        self.folder, self.plan, self.say = folder.absolute(), plan, say
        self.installation = Installation(self.folder / "services", [])
        self.session = ""
        self.client: AsyncClient | None = None

    # ----------------------------------------------------------------- files

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

    def policy(self, holder: str) -> Path:
        """The holder's local policy: what it approves without asking its operator."""
        return self.folder / "policies" / f"{holder}.toml"

    # ----------------------------------------------------------------- steps

    async def start(self) -> None:
        """Data, program, processes; then submit, or find the session again."""
        folders = await asyncio.to_thread(corpus.split, self.folder / "data", HOLDERS)
        self.installation.holders = [HolderSpec(name, {"corpus": folders[name]}, self.policy(name)) for name in HOLDERS]
        await asyncio.to_thread(self.installation.prepare)
        building = asyncio.create_task(self._build(folders["held-out"]))
        try:
            archive = await building
            self._write_policies(archive)
            await self.installation.start()
        finally:
            building.cancel()
        self.client = AsyncClient(self.installation.services["orchestrator"].url, self.installation.owner_key)
        self.session = await (self._resume() if self.state.exists() else self._submit(archive))

    async def stop(self) -> None:
        """Stop every process of this demo."""
        if self.client:
            await self.client.close()
        await self.installation.stop()

    async def _build(self, held_out: Path) -> Archive:
        if not self.program.exists():
            self.say("building the training program (torch.export) …")
            options = [f"--option={name}={value}" for name, value in self.plan.program_options.items()]
            await run_gput("program", "build", "gpt2", "-o", str(self.program), *options)
        archive = open_archive(self.program.read_bytes())
        if not self.held_out.exists():
            await asyncio.to_thread(self._write_held_out, held_out, archive)
        return archive

    def _write_held_out(self, folder: Path, archive: Archive) -> None:
        from data_holder.datasets import open_dataset
        from shared.claims.visit import CursorRange

        manifest = archive.manifest
        with open_dataset(folder, manifest.records, manifest.tokenizer) as dataset:
            count = min(self.plan.validation_records, dataset.records)
            out = bytearray(count * dataset.record_bytes)
            dataset.read_into(CursorRange(start=0, count=count, order="shuffled", seed=7), memoryview(out))
        self.held_out.write_bytes(out)

    def _write_policies(self, archive: Archive) -> None:
        text = f"""# What this holder approves without asking its operator; everything else is refused.
dataset = "corpus"
[programs]
digests = ["{archive.digest.hex()}"]
[limits]
max_rounds = 1000
min_privacy_floor = {self.plan.batch}
[output]
release_to = ["owner"]
[session]
min_parties = 3
[evidence]
allow_emulated = true
"""
        for holder in HOLDERS:
            self.policy(holder).parent.mkdir(exist_ok=True)
            self.policy(holder).write_text(text)

    # --------------------------------------------------------------- session

    def manifest(self, archive: Archive) -> Manifest:
        """What the holders are asked to approve."""
        plan, records = self.plan, self.held_out.read_bytes()
        record_bytes = archive.manifest.records.record_bytes
        visit_bytes = plan.steps * plan.batch * record_bytes
        return Manifest(
            name="demo: one byte-level GPT-2 on three private corpora",
            program=archive.digest.hex(),
            training=TrainingOptions(
                optimizer=AdamW(lr=2e-3, weight_decay=0.05, betas=(0.9, 0.95)),
                schedule=Schedule(kind="cosine", warmup_steps=plan.steps, final_factor=0.1),
                grad_clip_norm=1.0,
                batch_size=plan.batch,
                seed=plan.seed,
                threads=2,
            ),
            roster=tuple(
                RosterEntry(holder=name, key=fingerprint(self.installation.holder_key(name).public), evidence=EMULATED)
                for name in HOLDERS
            ),
            gpu_evidence=EMULATED,
            orchestrator_evidence=EMULATED,
            rounds=plan.rounds,
            steps_per_visit=plan.steps,
            record_order="shuffled",
            buffer_bytes=max(4096, -(-visit_bytes // 4096) * 4096),
            privacy_floor=plan.batch,
            validation=Validation(dataset=sha256(records).hex(), records=len(records) // record_bytes, every_visits=3),
        )

    async def _submit(self, archive: Archive) -> str:
        client = self._client()
        for name in HOLDERS:
            await client.enrol(name, self.installation.holder_key(name).public)
        await client.upload_program(self.program.read_bytes())
        await client.upload_validation(self.held_out.read_bytes())
        view = await client.submit(self.manifest(archive))
        self.state.write_text(json.dumps({"session": view["id"], "plan": asdict(self.plan)}, indent=2) + "\n")
        return str(view["id"])

    async def _resume(self) -> str:
        session = str(json.loads(self.state.read_text())["session"])
        view = await self._client().session(session)
        if view["phase"] == "PAUSED":
            await self._client().act(session, "resume")
        return session

    def _client(self) -> AsyncClient:
        if self.client is None:
            raise ConfigurationError("the demo was not started")
        return self.client

    # ---------------------------------------------------------------- result

    async def collect(self) -> dict[str, Any]:
        """Fetch the model and receipts, verify both, and gather all that the final page shows.

        Raises:
            GputError: a receipt or the model does not verify.
        """
        client, session = self._client(), self.session
        view = await client.session(session)
        await client.model(session, self.folder / "model.safetensors")
        from gput.receipts import save, verify

        await save(client, session, self.folder / "receipts", self.installation.trust)
        receipts = await asyncio.to_thread(verify, self.folder / "receipts")
        checked = json.loads(await run_module("gput.local.plain_check", str(self.folder)))
        visits = await client.items(f"sessions/{session}/visits")
        links = [await self._links(name) for name in HOLDERS]
        return {"view": view, "visits": visits, "links": links, "receipts": receipts, "check": checked}

    async def _links(self, holder: str) -> dict[str, Any]:
        import httpx2

        service = self.installation.services[f"holder-{holder}"]
        token = (self.installation.folder / f"holder-{holder}" / "operator.token").read_text().strip()
        async with httpx2.AsyncClient(headers={"authorization": f"Bearer {token}"}) as http:
            answer = await http.get(f"{service.url}/v1/links")
        if answer.status_code != 200:
            raise GputError(f"holder {holder} did not answer for its links: {answer.status_code}", code="links")
        return {"holder": holder, **answer.json()}


async def run_gput(*arguments: str) -> str:
    """Run one gput command in a child process (it may need PyTorch, which this process must not import)."""
    return await run_module("gput", *arguments)


async def run_module(module: str, *arguments: str) -> str:
    """Run a module in a child process and return what it printed. Raises Unavailable with its last words."""
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
