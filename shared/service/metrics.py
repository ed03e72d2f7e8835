"""Metrics as they are declared, counted and read: what each is called and may be labelled with. Knows no service's own.

A label's values come from a small set that is known beforehand: never a session, a visit, a holder, or anything of a record. What is not
in the set is counted as "other", so no caller can make time series. Where metrics are served apart (`metrics_port`), collectors read on
another thread than the one that counts: what is read is copied first.
"""

from __future__ import annotations

from collections import Counter as Counts
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from shared.errors import VerificationFailed
from shared.explanations import explain
from shared.service.store import Store

OTHER = "other"
REQUEST_BUCKETS_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
STEP_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)
LONG_BUCKETS_S = (0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 3600, 14400, 86400)


@dataclass(frozen=True)
class Family:
    """One metric: its name without the ending that Prometheus adds, what it says, and what it is labelled with."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    says: str
    labels: tuple[str, ...] = ()

    def counter(self, registry: CollectorRegistry) -> Counter:
        """To be counted up."""
        return Counter(self.name, self.says, self.labels, registry=registry)

    def histogram(self, registry: CollectorRegistry, buckets: tuple[float, ...]) -> Histogram:
        """To be told durations in seconds."""
        return Histogram(self.name, self.says, self.labels, registry=registry, buckets=buckets)

    def read(self) -> CounterMetricFamily | GaugeMetricFamily:
        """For a collector, which fills in what it read."""
        kind = CounterMetricFamily if self.kind == "counter" else GaugeMetricFamily
        return kind(self.name, self.says, labels=self.labels)


COMMITS = Family("gput_store_commits", "counter", "Database commits.")
REQUESTS = Family("gput_http_requests", "counter", "Requests answered.", ("method", "route", "status"))
REQUEST_SECONDS = Family("gput_http_request_seconds", "histogram", "Time to the last byte of the answer.", ("route",))
FAMILIES = (REQUESTS, REQUEST_SECONDS, COMMITS)
"""What every service has."""


def bounded(code: str) -> str:
    """A problem code as a label: one that is explained (a peer could make up any number of others)."""
    return code if explain(code) is not None else OTHER


class Failures:
    """How often what failed, by problem code."""

    def __init__(self) -> None:
        self.by_code: Counts[str] = Counts()

    def met(self, code: str) -> None:
        """Once more."""
        self.by_code[bounded(code)] += 1

    def read(self) -> dict[str, int]:
        """How often by now."""
        return dict(self.by_code)

    @contextmanager
    def counted(self) -> Iterator[None]:
        """What is refused as not believable inside counts, and goes on."""
        try:
            yield
        except VerificationFailed as error:
            self.met(error.code)
            raise


class StoreCollector(Collector):
    """Commits of a process's store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def collect(self) -> Iterator[Metric]:
        """One sample per scrape."""
        family = COMMITS.read()
        family.add_metric([], self._store.commits)
        yield family
