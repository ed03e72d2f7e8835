"""Cells of conventional data sharing: holder → orchestrator → GPU, both legs sealed, three processes and two counted links.

Knows relay and sender by what they print and answer. What lies in the GPU at the end is compared with what was sent.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gput.bench.bucket import bytes_per_s
from gput.bench.timeline import Stages
from gput.bench.travelling import Cell, Traffic, Way, label
from gput.local.installation import Installation, to_toml
from gput.local.job import Say, run_module
from gput.local.process import Service
from gput.local.travel.link import Link
from shared.canonical import blake3_256
from shared.errors import JobFailed
from shared.service.http import PeerClient, Peers

LONGEST_S = 15.0
"""A cell's transfers are fewer where the link alone would keep them longer than this."""


@dataclass(frozen=True)
class Taken:
    """One transfer: its seconds, what its records spent in each stage, how many they were, sealings and openings."""

    seconds: float
    stages: Stages
    records: int
    operations: float


class Sharing:
    """One GPU, a relay in front of it, a file of records.

    Args:
        lengths: bytes of the transfers; the longest is the region's and the file's.
    """

    def __init__(self, folder: Path, program: Path, records: Path, lengths: Sequence[int], say: Say) -> None:
        self._records, self._program, self._lengths, self._say = records, program, list(lengths), say
        self._installation = Installation(folder.absolute(), [])
        self._relay = Service("relay", [], {}, folder)
        self._between = Link(lambda: self._relay.url)
        self._to_gpu = Link(lambda: self._installation.services["agent"].url)

    async def cells(self, rates: Sequence[float | None], times: int) -> list[Cell]:
        """Every rate and length, each of `times` transfers, or fewer over a slow link; after one that is not counted.

        Raises:
            JobFailed: the GPU holds something else than was sent. Unavailable: a process did not start.
        """
        try:
            await self._start()
            async with Peers() as peers:
                relay = peers.peer(self._relay.url, "relay")
                await self._cell(relay, None, self._lengths[0], 1)
                found = [
                    await self._cell(relay, rate, length, _bearable(rate, length, times))
                    for rate in rates for length in sorted(self._lengths)
                ]  # fmt: skip
                await self._check(relay)
            return found
        finally:
            await self._stop()

    async def ablation(self, times: int) -> tuple[list[Taken], list[Taken]]:
        """Transfers of the longest length over the uncapped link: one record after another, and overlapped; taken by turns.

        Raises:
            As `cells`.
        """
        try:
            await self._start()
            async with Peers() as peers:
                relay = peers.peer(self._relay.url, "relay")
                await self._taken(relay, 1, overlap=True)
                pairs = [
                    [await self._taken(relay, 1, overlap=overlap) for overlap in (False, True)] for _ in range(times)
                ]
                await self._check(relay)
            turns, together = (list(found) for found in zip(*pairs, strict=True))
            return turns, together
        finally:
            await self._stop()

    async def _taken(self, relay: PeerClient, times: int, *, overlap: bool) -> Taken:
        self._say(f"re-encrypt, overlap {'on' if overlap else 'off'} …")
        before, upload_s = await _operations(relay), await _upload_s(relay)
        (sent,) = await self._send(max(self._lengths), times, overlap=overlap)
        records, upload_s = int(sent["records"]), await _upload_s(relay) - upload_s
        operations = await _operations(relay) - before + records
        seal_s, post_s = float(sent["seal_s"]), float(sent["post_s"])
        # One after another, the answer to a record waits for its upload; what is left of the request is the way to the relay.
        stages = Stages(seal_s / records, max(0.0, post_s - upload_s) / records, upload_s / records)
        fixed = max(0.0, float(sent["seconds"]) - seal_s - post_s)
        return Taken(float(sent["seconds"]), replace(stages, fixed=fixed), records, operations)

    async def _send(self, length: int, times: int, *, overlap: bool = True) -> list[dict[str, float]]:
        how = "overlap" if overlap else "turns"
        words = (self._between.url, str(self._records), str(length), str(times), how)
        found: list[dict[str, float]] = json.loads(await run_module("gput.local.travel.sender", *words))
        return found

    async def _stop(self) -> None:
        await self._relay.stop()
        await self._installation.stop()
        await self._between.close()
        await self._to_gpu.close()

    async def _start(self) -> None:
        self._installation.prepare()
        await self._between.open()
        await self._to_gpu.open()
        await self._installation.start_gpu()
        folder, config = self._installation.folder, self._installation.folder / "config" / "relay.toml"
        config.write_text(to_toml({
            "die_with_parent": True, "log_format": "json", "data_dir": folder / "relay", "trust_dir": self._installation.trust,
            "allow_emulated": True, "agent_url": self._to_gpu.url, "platform_url": self._installation.services["platform"].url,
            "identity": folder / "orchestrator" / "identity.pem", "program": self._program.absolute(),
            "region_bytes": max(self._lengths),
        }))  # fmt: skip
        command = ["-m", "gput.local.travel.relay", "--config", str(config)]
        self._relay = Service("relay", command, {}, folder / "logs" / "relay.log")
        await self._relay.start()

    async def _cell(self, relay: PeerClient, rate: float | None, length: int, times: int) -> Cell:
        self._say(f"conventional, {label(rate)}, {length} bytes …")
        self._between.pace(rate)
        links, before = (self._between, self._to_gpu), await _operations(relay)
        crossed = [link.traffic for link in links]
        sent = await self._send(length, times)
        between, to_gpu = ((link.traffic - old) / times for link, old in zip(links, crossed, strict=True))
        operations = (await _operations(relay)) - before + sum(int(one["records"]) for one in sent)
        seconds = statistics.median(one["seconds"] for one in sent)
        return Cell(Way.CONVENTIONAL, rate, length, times, seconds, between, Traffic(), to_gpu, operations / times)

    async def _check(self, relay: PeerClient) -> None:
        """The last transfer filled the region: the GPU's own digest of it is the file's."""
        expected = blake3_256(self._records.read_bytes()[: max(self._lengths)]).hex()
        if (await relay.get_json("/v1/digest"))["digest"] != expected:
            raise JobFailed("the GPU holds other records than the holder sent", code="records-differ")


def _bearable(rate: float | None, length: int, times: int) -> int:
    per_s = bytes_per_s(rate)
    return times if per_s is None else max(1, min(times, int(LONGEST_S * per_s / length)))


async def _upload_s(relay: PeerClient) -> float:
    return float((await relay.get_json("/v1/counts"))["upload_s"])


async def _operations(relay: PeerClient) -> int:
    """Openings and sealings of records at the relay, and the GPU's opening of each that was sealed to it."""
    counts = await relay.get_json("/v1/counts")
    return int(counts["opened"]) + 2 * int(counts["sealed"])
