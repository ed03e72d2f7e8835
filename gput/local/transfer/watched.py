"""The holder's way to the GPU, watched: when a visit's last record before the closing one was accepted. Knows no bench."""

from __future__ import annotations

import time
from collections.abc import Sequence

from data_holder.bounce import BounceLink
from data_holder.gpu_channel import Provisioner
from data_holder.links import Answered, GpuLink, LinkCounters
from data_holder.ringing import Rung
from shared.service.clock import system_clock
from shared.service.http import PeerClient
from shared.wire.bounce import Bounced


class WatchedLink(GpuLink):
    """The holder's link, which tells when the last record before the closing one was accepted: there the data are in GPU memory, every tag
    verified, and publication begins. So the closing record goes by a request of its own."""

    def __init__(self, peer: PeerClient) -> None:
        super().__init__(peer, LinkCounters())
        self._left, self.moved_at = 0, 0.0

    def expect(self, records: int) -> None:
        """So many before the closing one."""
        self._left = records

    async def leave(
        self, door: str, gpu: str, port: str, *records: memoryview, timeout_s: float, wait_s: float = 0
    ) -> Answered:
        """See `GpuLink.leave`."""
        if self._left < len(records) > 1:
            await super().leave(door, gpu, port, *records[:-1], timeout_s=timeout_s, wait_s=wait_s)
            self.accepted(len(records) - 1, time.perf_counter())
            records = records[-1:]
        answer = await super().leave(door, gpu, port, *records, timeout_s=timeout_s, wait_s=wait_s)
        self.accepted(len(records), time.perf_counter())
        return answer

    async def bounced(self, gpu: str, port: str, places: Bounced, *, timeout_s: float, wait_s: float = 0) -> Answered:
        """See `GpuLink.bounced`."""
        named = places.places
        if self._left < len(named) > 1:
            first = places.model_copy(update={"places": named[:-1]})
            await super().bounced(gpu, port, first, timeout_s=timeout_s, wait_s=wait_s)
            self.accepted(len(named) - 1, time.perf_counter())
            places = places.model_copy(update={"places": named[-1:]})
        answer = await super().bounced(gpu, port, places, timeout_s=timeout_s, wait_s=wait_s)
        self.accepted(len(places.places), time.perf_counter())
        return answer

    def accepted(self, records: int, at: float) -> None:
        """So many more records were, at this time (`time.perf_counter`)."""
        if records and self._left > 0:
            self._left, self.moved_at = self._left - records, at


class WatchedProvisioner(Provisioner):
    """Tells the watched link of what came by doorbell, where the closing record always has a ring of its own."""

    def __init__(self, link: WatchedLink, bounce: BounceLink, prepare_bytes: int) -> None:
        super().__init__(link, system_clock, prepare_bytes=prepare_bytes, bounce=bounce)
        self._watched = link

    def _rung(self, acknowledged: Sequence[Rung]) -> None:
        super()._rung(acknowledged)
        for one in acknowledged:
            self._watched.accepted(len(one.batch), one.ended)
