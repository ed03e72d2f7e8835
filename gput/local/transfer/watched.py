"""A holder's visit, watched: when its last record before the closing one was accepted. Knows no bench."""

from __future__ import annotations

from data_holder.bounce import BounceLink
from data_holder.gpu_channel import Provisioner
from data_holder.links import GpuLink
from data_holder.slots import Brought
from shared.service.clock import system_clock


class WatchedProvisioner(Provisioner):
    """Tells when the last record before the closing one was accepted (`moved_at`, of `time.perf_counter`): there the data are in GPU
    memory, every tag verified, and publication begins. So the closing record goes by itself. `records`: before the closing one."""

    def __init__(self, link: GpuLink, bounce: BounceLink, prepare_bytes: int, records: int) -> None:
        super().__init__(link, system_clock, prepare_bytes=prepare_bytes, bounce=bounce)
        self._before_closing, self.moved_at = records, 0.0

    def _at_once(self) -> int:
        return min(super()._at_once(), max(1, self._ahead.left - 1))

    def _acknowledged(self, these: Brought, started: float, ended: float) -> None:
        super()._acknowledged(these, started, ended)
        if self._before_closing > 0:
            self._before_closing, self.moved_at = self._before_closing - these.records, ended
