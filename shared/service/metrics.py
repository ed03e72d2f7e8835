"""Metrics that are read where they are kept instead of being counted twice. Knows no HTTP."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from shared.service.store import Store


class StoreCollector(Collector):
    """Commits of a process's store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def collect(self) -> Iterator[Metric]:
        """One sample per scrape."""
        yield CounterMetricFamily("gput_store_commits", "Database commits.", value=self._store.commits)
