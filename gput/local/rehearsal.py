"""A rehearsal of a manifest: its session over made-up records, in separate processes on this machine. Knows the launcher and the client;
judges nothing (`gput.rehearsing`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gput.client import AsyncClient
from gput.following import ENDED
from gput.local.installation import HolderSpec, Installation
from gput.local.job import Say, policy_file
from gput.local.made_up import with_edges
from gput.local.opening import opened
from gput.rehearsing import held_out_records, records_for, rehearsed
from shared.canonical import sha256
from shared.claims.archive import Archive, open_archive
from shared.claims.manifest import Manifest
from shared.claims.records import RecordSchema
from shared.errors import GputError, TimedOut

DATASET = "made-up"


@dataclass(frozen=True)
class Part:
    """What a rehearsal is of. `program`: the archive's path; `weights`: what the session starts from, None where that is made from
    a seed; `data`: other records than made-up ones, by holder; `steps`: of a visit at most."""

    manifest: Manifest
    program: Path
    weights: bytes | None = None
    data: Mapping[str, Path] = field(default_factory=dict)
    visits: int = 3
    steps: int | None = None
    seed: int = 0


@dataclass(frozen=True)
class Played:
    """What came of it: the manifest that ran, in what it differs, the session and its visits as the API shows them. `gpu`: what its GPU
    agent measured, by the names of its metrics; `refusals`: why a holder refused it, by holder."""

    manifest: Manifest
    changes: Sequence[str]
    session: Mapping[str, Any]
    visits: Sequence[Mapping[str, Any]]
    gpu: Mapping[str, float] = field(default_factory=dict)
    refusals: Mapping[str, str] = field(default_factory=dict)


async def rehearse(folder: Path, part: Part, seconds: float, say: Say) -> Played:
    """Run it to its end in `folder` (absolute); every process of it is gone afterwards.

    Raises:
        ManifestRefused: the orchestrator finds it wrong. TimedOut: it did not end in `seconds`.
    """
    rehearsal = _Rehearsal(folder, part, say)
    try:
        async with asyncio.timeout(seconds):
            return await rehearsal.play()
    except TimeoutError:
        raise TimedOut(
            f"the rehearsal did not end within {seconds:g} s{await rehearsal.waited_for()}", code="rehearsal-timed-out",
            remedy="Say a longer --timeout, or fewer --visits and --steps.",
        ) from None  # fmt: skip
    finally:
        await rehearsal.stop()


async def measured(url: str) -> dict[str, float]:
    """A GPU agent's metrics of its one GPU, by name; none where it does not answer, for nothing that is judged rests on them."""
    import httpx2
    from prometheus_client.parser import text_string_to_metric_families

    try:
        async with httpx2.AsyncClient(trust_env=False) as http:
            text = (await http.get(url)).raise_for_status().text
    except httpx2.HTTPError:
        return {}
    samples = (sample for family in text_string_to_metric_families(text) for sample in family.samples)
    return {sample.name: sample.value for sample in samples if "gpu" in sample.labels}


def policy_for(manifest: Manifest) -> str:
    """The policy file by which every holder of a rehearsal approves its manifest, whatever that one asks of holders."""
    return policy_file(
        DATASET, f'digests = ["{manifest.program}"]', rounds=manifest.rounds, floor=manifest.privacy_floor,
        parties=manifest.quorum or len(manifest.roster), mode=manifest.travel_mode, shares=manifest.recovery_shares,
        release_to=manifest.output.release_to, continuation=manifest.continuation == "remaining",
    )  # fmt: skip


async def ended(client: AsyncClient, session: str) -> tuple[dict[str, Any], dict[str, str]]:
    """The session once it has ended, is paused, or a holder refused it, which nobody here will ever take back; and why, by holder."""
    view = await client.patiently(session)
    while view["phase"] not in (*ENDED, "PAUSED") and not any(one["decision"] == "refuse" for one in view["holders"]):
        # A running session's facts are many, and the rehearsal measures how long its visits take.
        news = {"version": view["version"]} if view["phase"] == "AWAITING_APPROVAL" else {"phase": view["phase"]}
        view = await client.patiently(session, wait=25, **news)
    decisions = await client.items(f"sessions/{session}/approvals")
    return view, {str(one["holder"]): str(one["reason"]) for one in decisions if one["decision"] == "refuse"}


class _Rehearsal:
    def __init__(self, folder: Path, part: Part, say: Say) -> None:
        self._folder, self._part, self._say = folder, part, say
        self._archive = part.program.read_bytes()
        self._opened: Archive = open_archive(self._archive)
        names = [entry.holder for entry in part.manifest.roster]
        self._made = {name: folder / "data" / f"{name}.npz" for name in names if name not in part.data}
        policy = folder / "policy.toml"
        specs = [HolderSpec(name, {DATASET: self._place(name).absolute()}, policy) for name in names]
        self._installation = Installation(folder / "services", specs)
        self._client: AsyncClient | None = None
        self._session = ""

    def _place(self, name: str) -> Path:
        return self._part.data.get(name) or self._made[name]

    async def play(self) -> Played:
        part, program = self._part, self._opened.manifest
        await asyncio.to_thread(self._installation.prepare)
        held_out = await asyncio.to_thread(self._held_out, program.records, held_out_records(part.manifest, program))
        manifest, changes = rehearsed(
            part.manifest, {spec.name: self._installation.holder_key(spec.name).fingerprint for spec in self._installation.holders},
            visits=part.visits, steps=part.steps, held_out=(sha256(held_out).hex(), len(held_out) // program.records.record_bytes),
        )  # fmt: skip
        await asyncio.to_thread(self._write, manifest)
        self._say(f"starting services of its own here, {len(manifest.roster)} holders among them …")
        weights = [] if part.weights is None else [part.weights]
        client = self._client = await opened(self._installation, self._archive, weights)
        if held_out:
            await client.upload_validation(held_out)
        session = self._session = str((await client.submit(manifest))["id"])
        self._say(f"{manifest.rounds} visits to each of {len(manifest.roster)} holders …")
        view, refusals = await ended(client, session)
        gpu = await measured(f"{self._installation.services['agent'].url}/metrics")
        return Played(manifest, changes, view, await client.items(f"sessions/{session}/visits"), gpu, refusals)

    async def waited_for(self) -> str:
        """What it was doing when its time was up, for a message; empty before there was a session."""
        if self._client is None or not self._session:
            return ""
        with suppress(GputError):
            view = await self._client.session(self._session)
            return f"; it waited for {', '.join(view['waiting_for']) or 'phase ' + view['phase']}"
        return ""

    async def stop(self) -> None:
        if self._client is not None:
            await self._client.close()
        await self._installation.stop()

    def _held_out(self, schema: RecordSchema, count: int) -> bytes:
        """Held-out records as a file: each one's fields one after another."""
        import numpy as np

        if not count:
            return b""
        columns = with_edges(schema, count, self._part.seed).values()
        return np.concatenate([column.reshape(count, -1).view(np.uint8) for column in columns], axis=1).tobytes()

    def _write(self, manifest: Manifest) -> None:
        """The made-up records, and the policy."""
        import numpy as np  # here: every command would pay for it

        program = self._opened.manifest
        (self._folder / "data").mkdir(parents=True, exist_ok=True)
        for number, (name, file) in enumerate(self._made.items()):
            made: dict[str, Any] = with_edges(
                program.records, records_for(manifest, program, name), self._part.seed + number
            )
            np.savez(file, **made)
        (self._folder / "policy.toml").write_text(policy_for(manifest))
