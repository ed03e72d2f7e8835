"""What a GPU agent counts of its GPUs from outside: boots, switches, memory. Knows no session, and looks into no message."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from shared.service.metrics import Family

if TYPE_CHECKING:
    from gpu_agent.unit import GpuUnit

BOOTS = Family("gput_gpu_boots", "counter", "Boots of the device, over all restarts of the agent.", ("gpu",))
SWITCHES = Family(
    "gput_gpu_port_switches",
    "counter",
    "How often the MUX bound another port, since the agent's start or its select register's making.",
    ("gpu",),
)
MEMORY = Family("gput_gpu_memory_bytes", "gauge", "Memory of the GPU.", ("gpu",))
BESIDE = Family(
    "gput_gpu_training_bytes", "gauge",
    "Most memory that a training took at once beside that of the GPU, since the agent's start: resident bytes of the emulated GPU's "
    "compute process, tensors on a CUDA device. Rounded up to a power of two: what exactly a training takes may follow from its records. "
    "Absent before the first.", ("gpu",),
)  # fmt: skip
FAMILIES = (BOOTS, SWITCHES, MEMORY, BESIDE)


class GpuCollector(Collector):
    """Public facts of every GPU, as its page shows them."""

    def __init__(self, units: Mapping[str, GpuUnit]) -> None:
        self._units = units

    def collect(self) -> Iterator[Metric]:
        """Read at each scrape."""
        boots, switches, memory, beside = (each.read() for each in FAMILIES)
        for name, unit in self._units.items():
            view = unit.view()
            boots.add_metric([name], view.boot_counter or 0)
            switches.add_metric([name], view.switches)
            memory.add_metric([name], view.memory_bytes or 0)
            if unit.compute.most_beside is not None:
                beside.add_metric([name], _coarse(unit.compute.most_beside))
        yield from (boots, switches, memory, beside)


def _coarse(size: int) -> int:
    """The next power of two: whoever reads it learns how large a GPU has to be, and next to nothing of any record."""
    return 1 << max(0, size - 1).bit_length()
