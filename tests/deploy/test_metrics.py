"""Every metric that the dashboard asks for exists with the labels it asks by; services serve exactly what is documented."""

from __future__ import annotations

import json
import re
from itertools import chain
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily

from data_holder.metrics import VisitMetrics
from data_holder.visits import Visits
from docs.generate import METRICS
from orchestrator.metrics import HouseCollector, SessionMetrics
from orchestrator.sessions.watching import Noted, Watchers
from shared.errors import Refused
from shared.names import SessionPhase
from shared.service.metrics import OTHER, Failures, Family, bounded

DASHBOARD = Path(__file__).parents[2] / "deploy/grafana/gpu-travelling.json"
PRIVATE = {"session", "visit", "holder", "party", "dataset", "record", "owner"}


def families() -> dict[str, Family]:
    return {family.name: family for family in chain.from_iterable(METRICS.values())}


def _family(name: str) -> Family:
    for ending in ("", "_total", "_bucket", "_sum", "_count"):
        if name.endswith(ending) and (found := families().get(name.removesuffix(ending) if ending else name)):
            wanted = {"": "gauge", "_total": "counter"}.get(ending, "histogram")
            assert found.kind == wanted, name
            return found
    raise AssertionError(f"there is no metric {name}")


def test_the_dashboard_asks_for_what_there_is() -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    asked = set()
    for expression in (target["expr"] for panel in panels for target in panel["targets"]):
        names = re.findall(r"\bgput_\w+", expression)
        assert names, expression
        allowed = {"le", *chain.from_iterable(_family(name).labels for name in names)}
        grouped = {label.strip() for labels in re.findall(r"by \(([^)]*)\)", expression) for label in labels.split(",")}
        chosen = set(re.findall(r"(\w+)=\"", expression))
        assert grouped | chosen <= allowed, expression
        asked |= {_family(name).name for name in names}
    assert len({panel["id"] for panel in panels}) == len(panels) > 12
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels]
    assert len(set(places)) == len(places)
    assert len(asked) > 20


def test_no_label_tells_of_a_party_or_its_data() -> None:
    assert not {label for family in families().values() for label in family.labels} & PRIVATE


def test_codes_that_a_peer_made_up_are_one_label() -> None:
    failures = Failures()
    for code in ("vetoed", "made-up-1", "made-up-2"):
        failures.met(code)
    assert failures.by_code == {"vetoed": 1, OTHER: 2}
    assert bounded("") == OTHER


def test_durable_facts_are_counted() -> None:
    registry = CollectorRegistry()
    told = Watchers(SessionMetrics(registry).noted).tell
    seen = {"visit": "v", "holder": "north", "round": 1, "attempt": 1}
    for at, kind, body in (
        (1.0, "session.agreed", {}), (4.0, "session.started", {}), (5.0, "session.life_opened", {}),
        (6.0, "visit.reported", {**seen, "bytes_sent": 100, "reported_records": 7}),
        (7.0, "training.closed", {**seen, "durations": {"train": 0.5, "epilogue": 0.25, "made up": 1.0}}),
        (8.0, "visit.recalled", {**seen, "durations": {}}), (9.0, "session.checkpointed", {"seconds": 2.0}),
        (10.0, "session.failed", {"code": "nobody-knows"}),
    ):  # fmt: skip
        told(Noted("s", kind, body, at))
    value = registry.get_sample_value
    assert value("gput_visits_total", {"outcome": "closed"}) == value("gput_visits_total", {"outcome": "recalled"}) == 1
    assert value("gput_visits_total", {"outcome": "lost"}) == 0
    assert (value("gput_provisioned_bytes_total"), value("gput_provisioned_records_total")) == (100, 7)
    assert value("gput_visit_step_seconds_sum", {"step": "train"}) == 0.5
    assert value("gput_visit_step_seconds_count", {"step": "made up"}) is None
    assert value("gput_queue_wait_seconds_sum") == 3.0
    assert value("gput_checkpoint_seconds_sum") == 2.0
    assert value("gput_session_failures_total", {"code": OTHER}) == 1
    assert value("gput_receipts_total") == value("gput_gpu_lives_total") == value("gput_checkpoints_total") == 1


def test_a_watcher_that_breaks_stops_nobody() -> None:
    heard: list[Noted] = []

    def broken(_noted: Noted) -> None:
        raise ValueError

    Watchers(broken, heard.append).tell(Noted("s", "session.started", {}, 1.0))
    assert [noted.kind for noted in heard] == ["session.started"]


def test_what_is_registered_is_what_is_documented() -> None:
    registry = CollectorRegistry()
    SessionMetrics(registry)
    registry.register(HouseCollector(lambda: [SessionPhase.READY], lambda: (True, 2), Failures()))
    assert {metric.name for metric in registry.collect()} == {family.name for family in METRICS["Orchestrator"]}
    assert registry.get_sample_value("gput_sessions", {"phase": "READY"}) == 1
    assert (registry.get_sample_value("gput_leading"), registry.get_sample_value("gput_lease_losses_total")) == (1, 2)
    registry = CollectorRegistry()
    VisitMetrics(registry)
    assert {metric.name for metric in registry.collect()} <= {family.name for family in METRICS["Data holder"]}


@pytest.mark.parametrize("service", METRICS)
def test_families_are_named_as_prometheus_wants(service: str) -> None:
    for family in METRICS[service]:
        assert re.fullmatch(r"gput_[a-z_]+", family.name)
        assert not family.name.endswith(("_total", "_count", "_sum", "_bucket"))
        assert family.says.endswith(".")


def test_what_is_counted_while_somebody_scrapes_disturbs_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Metrics that are served apart are read on another thread: a dict that grew meanwhile ended the scrape."""
    failures, registry, add = Failures(), CollectorRegistry(), CounterMetricFamily.add_metric
    for code in ("vetoed", "lease-expired"):
        failures.met(code)

    def meanwhile(family: CounterMetricFamily, *told: Any, **more: Any) -> None:
        failures.met("no-trust")
        add(family, *told, **more)

    registry.register(HouseCollector(list, lambda: (True, 0), failures))
    monkeypatch.setattr(CounterMetricFamily, "add_metric", meanwhile)
    assert 'gput_attestation_failures_total{code="vetoed"} 1.0' in generate_latest(registry).decode()


async def test_codes_that_a_peer_makes_up_fill_no_memory() -> None:
    visits = Visits.__new__(Visits)
    visits.refusals = {}
    for number in range(3):
        await visits._turn_away("s_a", Mock(), Refused("no", code=f"made-up-{number}"), answer=False)
    await visits._turn_away("s_a", Mock(), Refused("no", code="lease-expired"), answer=False)
    assert visits.refusals == {OTHER: 3, "lease-expired": 1}
