"""What a data holder counts: bytes over its two links, visits it served, offers and evidence it refused. Knows no route."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from data_holder.assembly import Holder
from shared.service.clock import Clock, system_clock
from shared.service.metrics import STEP_BUCKETS_S, Family
from shared.service.tracing import Place, Tracing
from shared.wire.visit import VisitReport

LINK_BYTES = Family(
    "gput_holder_link_bytes", "counter", "Body bytes per link: `gpu`, `orchestrator`.", ("link", "direction")
)
DATASET_BYTES = Family(
    "gput_holder_dataset_bytes", "counter", "Record bytes per link; sealed, and to the GPU alone.", ("link",)
)
PROOF_BYTES = Family("gput_holder_proof_bytes", "counter", "Bytes of membership proofs per link.", ("link",))
REFUSED = Family("gput_holder_offers_refused", "counter", "Offers refused, by problem code.", ("code",))
CONNECTED = Family("gput_holder_connected", "gauge", "1 when the last inbox call was answered, else 0.")
DISTRUST = Family("gput_attestation_failures", "counter", "Evidence refused, by problem code.", ("code",))
VISITS = Family("gput_holder_visits", "counter", "Visits for which the records were sent.")
SECONDS = Family(
    "gput_holder_visit_seconds", "histogram",
    "Seconds of this holder's part of a visit: grab_gpu, import_key, buffer_read, gpu_write, export_key; "
    "waiting at the port while the GPU is elsewhere is in none.", ("step",),
)  # fmt: skip
FAMILIES = (LINK_BYTES, DATASET_BYTES, PROOF_BYTES, REFUSED, CONNECTED, DISTRUST, VISITS, SECONDS)


class VisitMetrics:
    """Counts reports once they are durable, and adds their part to the visit's trace, where there is one."""

    def __init__(
        self, registry: CollectorRegistry, tracing: Tracing | None = None, clock: Clock = system_clock
    ) -> None:
        self._visits, self._seconds = VISITS.counter(registry), SECONDS.histogram(registry, STEP_BUCKETS_S)
        self._tracing, self._clock = tracing, clock

    def reported(self, report: VisitReport) -> None:
        """One visit's records are sent."""
        self._visits.inc()
        timers: dict[str, float] = report.timers.model_dump()
        for step, seconds in timers.items():
            self._seconds.labels(step).observe(seconds)
        if self._tracing is not None:
            self._tracing.steps(Place.of_visit(report.visit), "holder.", timers, self._clock())


class LinkCollector(Collector):
    """The two links' counters, and what a person watches, as Prometheus metrics."""

    def __init__(self, holder: Holder) -> None:
        self._holder = holder

    def collect(self) -> Iterator[Metric]:
        """Read at each scrape; nothing is counted twice."""
        body, data, proofs, refused, connected, distrust = (
            each.read() for each in (LINK_BYTES, DATASET_BYTES, PROOF_BYTES, REFUSED, CONNECTED, DISTRUST)
        )
        for name, link in (("gpu", self._holder.gpu), ("orchestrator", self._holder.orchestrator.counters)):
            body.add_metric([name, "sent"], link.sent)
            body.add_metric([name, "received"], link.received)
            data.add_metric([name], link.dataset)
            proofs.add_metric([name], link.proofs)
        for code, count in dict(self._holder.visits.refusals).items():
            refused.add_metric([code], count)
        for code, count in self._holder.runner.distrust.read().items():
            distrust.add_metric([code], count)
        connected.add_metric([], float(self._holder.runner.listening.connected))
        yield from (body, data, proofs, refused, connected, distrust)
