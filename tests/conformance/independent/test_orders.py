"""Orders of visits, records and mixtures: computed a second time from docs/formats.md. Knows no tensor."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_agent.workload.private import record_seed
from gpu_agent.workload.training import step_seed
from orchestrator.itinerary import Itinerary
from shared.claims.manifest import Contributor, Predecessor
from shared.claims.training import TrainingOptions
from shared.claims.visit import CursorRange
from shared.protocol.mixture import mixture_order, mixture_seed
from shared.protocol.record_order import records_of
from tests.conformance.independent import page_orders
from tests.orchestrator.orchestrator_samples import key, manifest

SEEDS = st.integers(0, 2**53 - 1)


@given(SEEDS, st.integers(1, 9), st.integers(1, 8))
@settings(max_examples=40)
def test_visits(seed: int, holders: int, rounds: int) -> None:
    agreed = manifest(holders, visit_order="shuffled", rounds=rounds, training=TrainingOptions(batch_size=4, seed=seed))
    roster = [entry.holder for entry in agreed.roster]
    plan = [page_orders.visit_order(seed, number, roster) for number in range(1, rounds + 1)]
    assert [stop.holder for stop in Itinerary(agreed)] == [holder for order in plan for holder in order]


def test_which_records_a_visit_carries() -> None:
    """Two steps of four records a visit; of a predecessor 100 records lie behind h0."""
    before = Predecessor(
        session="s_bbbbbbbbbbbbbbbb", manifest="aa" * 32, model="bb" * 32, optimiser="cc" * 32, step=50, log_size=1,
        log_root="dd" * 32, contributors=(Contributor(holder="h0", key=key(1).fingerprint, records=100),),
    )  # fmt: skip
    agreed = manifest(2, record_order="shuffled", predecessor=before)
    found = [(stop.holder, stop.round, stop.cursor) for stop in Itinerary(agreed)]
    behind = {"h0": 100, "h1": 0}
    assert found == [
        (holder, r, CursorRange(start=behind[holder] + (r - 1) * 8, count=8, order="shuffled", seed=7))
        for r in (1, 2, 3)
        for holder in ("h0", "h1")
    ]


@given(
    SEEDS, st.sampled_from(["sequential", "shuffled"]), st.integers(1, 300), st.integers(0, 2**40), st.integers(1, 60)
)
@settings(max_examples=60)
def test_records_of_a_cursor(seed: int, order: str, n: int, start: int, count: int) -> None:
    cursor = CursorRange.model_validate({"start": start, "count": count, "order": order, "seed": seed})
    assert records_of(cursor, n).tolist() == page_orders.cursor(seed, order, n, start, count)


@given(SEEDS, st.integers(1, 10**6), st.integers(1, 80))
@settings(max_examples=40)
def test_a_mixture(seed: int, round_number: int, n: int) -> None:
    drawn = mixture_seed(seed, round_number)
    assert drawn == page_orders.mixture_seed(seed, round_number) < 2**53
    assert mixture_order(drawn, n).records(np.arange(n)).tolist() == page_orders.mixture(seed, round_number, n)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 16, 17, 64, 65, 255, 256, 257])
def test_a_mixture_at_the_edges_of_the_networks_width(n: int) -> None:
    found = mixture_order(mixture_seed(7, 1), n).records(np.arange(n)).tolist()
    assert found == page_orders.mixture(7, 1, n)
    assert sorted(found) == list(range(n))


@given(SEEDS, st.integers(0, 2**40), st.integers(0, 2**16))
def test_random_numbers_of_a_step_and_of_a_record(seed: int, step: int, place: int) -> None:
    assert step_seed(seed, step) == page_orders.step_seed(seed, step) < 2**63
    assert record_seed(seed, step, place) == page_orders.record_seed(seed, step, place)
