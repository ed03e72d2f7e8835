"""What an orchestrator counts: visits, steps, receipts, checkpoints, queue, leases, failed attestations. Knows facts, no step and no route.

Everything about sessions is counted when the fact that says it has become durable, so a crash and a repeat count nothing twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from orchestrator.sessions.watching import Noted
from orchestrator.visit_steps import STEPS, in_order
from shared.names import SessionPhase
from shared.service.logging import get_logger
from shared.service.metrics import LONG_BUCKETS_S, STEP_BUCKETS_S, Failures, Family, bounded

OUTCOMES = ("closed", "rejected", "recalled", "quarantined", "lost")
ENDS = ("submitted", "started", "completed", "failed", "cancelled")

VISITS = Family("gput_visits", "counter", f"Visits that ended, by outcome: {', '.join(OUTCOMES)}.", ("outcome",))
STEP_SECONDS = Family(
    "gput_visit_step_seconds", "histogram",
    f"Seconds of each step of a visit: {', '.join(STEPS)}. The scrub with its read-back, commit and statement are `epilogue`.", ("step",),
)  # fmt: skip
BYTES = Family("gput_provisioned_bytes", "counter", "Bytes that holders reported to have sent to the GPU.")
RECORDS = Family("gput_provisioned_records", "counter", "Records that holders reported to have sent to the GPU.")
RECEIPTS = Family("gput_receipts", "counter", "Receipts signed and logged.")
CHECKPOINTS = Family("gput_checkpoints", "counter", "Sealed checkpoints.")
CHECKPOINT_SECONDS = Family("gput_checkpoint_seconds", "histogram", "Seconds a session stood still for a checkpoint.")
SESSIONS = Family("gput_session_events", "counter", f"Sessions, by what happened: {', '.join(ENDS)}.", ("event",))
FAILED = Family("gput_session_failures", "counter", "Sessions that failed, by problem code.", ("code",))
QUEUE_SECONDS = Family("gput_queue_wait_seconds", "histogram", "Seconds from a session's agreement to its start.")
LIVES = Family(
    "gput_gpu_lives", "counter", "Lives opened on GPUs: the first of a session, and one after each interruption."
)
LIVE = Family(
    "gput_sessions", "gauge", "Sessions that have not ended, by phase; READY ones wait for a GPU.", ("phase",)
)
LEADING = Family("gput_leading", "gauge", "1 while this orchestrator leads, else 0.")
LEASES = Family("gput_lease_losses", "counter", "Leases lost otherwise than by a clean stop.")
DISTRUST = Family("gput_attestation_failures", "counter", "Evidence refused, by problem code.", ("code",))
FAMILIES = (
    VISITS, STEP_SECONDS, BYTES, RECORDS, RECEIPTS, CHECKPOINTS, CHECKPOINT_SECONDS, SESSIONS, FAILED, QUEUE_SECONDS, LIVES, LIVE,
    LEADING, LEASES, DISTRUST,
)  # fmt: skip

_log = get_logger("sessions")


class SessionMetrics:
    """Counts durable facts of all sessions; also says each visit's end in the log."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._visits, self._sessions = VISITS.counter(registry), SESSIONS.counter(registry)
        self._steps = STEP_SECONDS.histogram(registry, STEP_BUCKETS_S)
        self._bytes, self._records, self._receipts = (each.counter(registry) for each in (BYTES, RECORDS, RECEIPTS))
        self._checkpoints = CHECKPOINTS.counter(registry)
        self._checkpoint_s = CHECKPOINT_SECONDS.histogram(registry, LONG_BUCKETS_S)
        self._failed, self._lives = FAILED.counter(registry), LIVES.counter(registry)
        self._queue_s = QUEUE_SECONDS.histogram(registry, LONG_BUCKETS_S)
        self._agreed: dict[str, float] = {}
        for outcome in OUTCOMES:  # there from the start, so that a rate can be taken of the first one
            self._visits.labels(outcome)
        for event in ENDS:
            self._sessions.labels(event)

    def noted(self, noted: Noted) -> None:
        """One fact is durable."""
        machine, _, name = noted.kind.partition(".")
        if machine == "session":
            self._session(noted, name)
        elif machine in ("visit", "training"):
            self._visit(noted, name)

    def _session(self, noted: Noted, name: str) -> None:
        if name in ENDS:
            self._sessions.labels(name).inc()
        if name == "agreed":
            self._agreed[noted.session] = noted.at
        elif name in ENDS and (agreed := self._agreed.pop(noted.session, None)) is not None and name == "started":
            self._queue_s.observe(max(0.0, noted.at - agreed))
        if name == "failed":
            self._failed.labels(bounded(str(noted.body.get("code")))).inc()
        elif name == "life_opened":
            self._lives.inc()
        elif name == "checkpointed":
            self._checkpoints.inc()
            self._checkpoint_s.observe(noted.body.get("seconds") or 0.0)

    def _visit(self, noted: Noted, name: str) -> None:
        body = noted.body
        if name == "reported":
            self._bytes.inc(body["bytes_sent"])
            self._records.inc(body["reported_records"])
        durations = in_order(body.get("durations"))
        for step, seconds in durations.items():
            self._steps.labels(step).observe(seconds)
        if name not in OUTCOMES:
            return
        self._visits.labels(name).inc()
        if name in ("closed", "rejected"):
            self._receipts.inc()
        _log.info(
            "visit over", session=noted.session, visit=body.get("visit"), party=body.get("holder"), outcome=name, round=body.get("round"),
            attempt=body.get("attempt"), reason=body.get("reason"), seconds=round(sum(durations.values()), 3),
        )  # fmt: skip


class HouseCollector(Collector):
    """What is read where it is kept: phases of live sessions, the lease, refused evidence."""

    def __init__(
        self, phases: Callable[[], list[SessionPhase]], lease: Callable[[], tuple[bool, int]], distrust: Failures
    ) -> None:
        self._phases, self._lease, self._distrust = phases, lease, distrust

    def collect(self) -> Iterator[Metric]:
        """Read at each scrape."""
        live, leading, leases, distrust = (each.read() for each in (LIVE, LEADING, LEASES, DISTRUST))
        found = self._phases()
        for phase in (SessionPhase.AWAITING_APPROVAL, SessionPhase.READY, SessionPhase.RUNNING, SessionPhase.PAUSED):
            live.add_metric([phase.value], found.count(phase))
        leads, lost = self._lease()
        leading.add_metric([], float(leads))
        leases.add_metric([], lost)
        for code, count in self._distrust.read().items():
            distrust.add_metric([code], count)
        yield from (live, leading, leases, distrust)
