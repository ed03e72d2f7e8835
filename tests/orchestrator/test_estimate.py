"""What a session is expected to take: told from the manifest and from what visits here took before, and honest where nothing tells."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import insert

from orchestrator.estimate import LEAST_VISITS, Earlier, costs_of, estimate
from orchestrator.tables import VISITS
from shared.claims.manifest import Manifest, Validation
from shared.claims.training import TrainingOptions
from shared.names import TravelMode
from shared.service.app import service_state
from tests.orchestrator.orchestrator_samples import key, manifest
from tests.orchestrator.orchestrator_world import World, prepared, submit

RECORD_BYTES = 8
ROUND_TRIP, PER_BYTE, PER_STEP, CHECK = 0.010, 1e-6, 0.05, 0.2


def visit(length: int = 64, steps: int = 2, slower: float = 1.0, **more: Any) -> dict[str, Any]:
    """A closed visit whose parts took what the constants say."""
    took = {
        "grant": ROUND_TRIP / 2,
        "provision": length * PER_BYTE,
        "train": steps * PER_STEP * slower,
        "close": ROUND_TRIP / 2,
    }
    return {"durations": took, "length": length, "steps": steps, "validation_after": None, **more}


def earlier(of: Manifest, *, count: int = LEAST_VISITS, gpu: str = "gpu-0", **more: Any) -> Earlier:
    return Earlier(of, gpu, [visit(**more) for _ in range(count)])


def test_a_session_costs_its_visits_its_bytes_and_its_steps() -> None:
    asked = manifest(rounds=5, steps_per_visit=3)
    costs = costs_of(asked, "gpu-0", [earlier(manifest())])
    found = estimate(asked, "gpu-0", RECORD_BYTES, {"h0": 40}, costs)
    each = ROUND_TRIP + 3 * 4 * RECORD_BYTES * PER_BYTE + 3 * PER_STEP
    assert (found.visits, found.steps, found.bytes) == (15, 45, 45 * 4 * RECORD_BYTES)
    assert found.seconds == pytest.approx(15 * each)
    assert found.gpu_hours == pytest.approx(15 * each / 3600)
    first, second, _ = found.holders
    assert (first.holder, first.visits, first.records, first.bytes) == ("h0", 5, 60, 480)
    assert first.seconds_per_visit == pytest.approx(each)
    assert (first.passes, second.passes) == (1.5, None), "h1 has not said how many records it has"
    assert found.unknown == []
    assert "6 visits of 1 earlier session " in found.basis


def test_one_slow_visit_decides_nothing() -> None:
    visits = [*[visit()] * LEAST_VISITS, visit(slower=1000)]
    costs = costs_of(manifest(), "gpu-0", [Earlier(manifest(), "gpu-0", visits)])
    assert costs.step_s == pytest.approx(PER_STEP)


@pytest.mark.parametrize(
    "other",
    [
        earlier(manifest(program="b" * 96)),
        earlier(manifest(training=TrainingOptions(batch_size=5, seed=7))),
        earlier(manifest(), gpu="gpu-1"),
    ],
    ids=["program", "batch", "gpu"],
)
def test_what_a_step_takes_is_not_told_from_other_work(other: Earlier) -> None:
    costs = costs_of(manifest(), "gpu-0", [other])
    assert costs.control_s == pytest.approx(ROUND_TRIP), "what travelling takes is the same"
    assert costs.step_s is None
    found = estimate(manifest(), "gpu-0", RECORD_BYTES, {}, costs)
    assert (found.seconds, found.gpu_hours, found.holders[0].seconds_per_visit) == (None, None, None)
    [why] = found.unknown
    assert why.startswith("seconds of a training step: this program was not trained on gpu-0 with a batch of 4")
    assert "gput plan" in why
    assert found.bytes == 18 * 4 * RECORD_BYTES, "what the manifest fixes is known anyway"


@pytest.mark.parametrize(
    "others",
    [
        [],
        [earlier(manifest(), count=LEAST_VISITS - 1)],
        [earlier(manifest(travel_mode=TravelMode.DIRECT))],
        [earlier(manifest(collect="tour"))],
    ],
    ids=["none", "too few", "another mode", "a tour"],
)
def test_where_nothing_tells_it_says_so_and_what_to_do(others: list[Earlier]) -> None:
    found = estimate(manifest(), "gpu-0", RECORD_BYTES, {}, costs_of(manifest(), "gpu-0", others))
    assert found.seconds is None
    assert [why.partition(":")[0] for why in found.unknown] == ["seconds of a visit", "seconds of a training step"]
    assert found.basis.endswith("seconds are not known yet")


def test_a_tour_is_not_told_from_visits() -> None:
    asked = manifest(collect="tour")
    found = estimate(asked, "gpu-0", RECORD_BYTES, {}, costs_of(asked, "gpu-0", [earlier(manifest()), earlier(asked)]))
    assert found.seconds is None
    assert found.unknown[0].startswith("seconds: a tour's training lies between its visits")


def test_held_out_checks_are_counted_with_the_first_and_last() -> None:
    asked = manifest(validation=Validation(dataset="d" * 64, records=4, every_visits=2))
    took = visit()
    checked = {**took, "durations": {**took["durations"], "validate": CHECK}, "validation_after": 1.0}
    with_checks = costs_of(asked, "gpu-0", [Earlier(manifest(), "gpu-0", [checked] * LEAST_VISITS)])
    without = costs_of(asked, "gpu-0", [earlier(manifest())])
    told, untold = (estimate(asked, "gpu-0", RECORD_BYTES, {}, costs) for costs in (with_checks, without))
    assert told.seconds is not None
    assert untold.seconds is not None
    assert told.seconds - untold.seconds == pytest.approx((1 + 5) * CHECK)
    assert untold.unknown == ["seconds of a held-out check: none was measured, so the sum has none"]


def test_a_program_that_is_gone_leaves_bytes_unknown() -> None:
    found = estimate(manifest(), "gpu-0", None, {}, costs_of(manifest(), "gpu-0", [earlier(manifest())]))
    assert (found.bytes, found.seconds, found.holders[0].bytes) == (None, None, None)
    assert found.unknown[0].startswith("bytes: the program is not stored here")


async def test_the_service_tells_it_from_its_own_tables_to_those_whom_it_concerns(world: World) -> None:
    owner = await prepared(world)
    first = (await submit(owner)).json()["id"]
    asked = (await submit(owner, "another", rounds=2)).json()["id"]
    nothing = (await owner.get(f"/v1/sessions/{asked}/estimate")).json()
    assert (nothing["seconds"], nothing["visits"], nothing["bytes"]) == (None, 6, 12 * 4 * RECORD_BYTES)
    store = service_state(world.app).store
    assert store is not None
    rows = [
        {"id": f"v_{n:016}", "session": first, "number": n, "holder": "h0", "phase": "CLOSED", "data": visit()}
        for n in range(1, LEAST_VISITS + 1)
    ]
    await store.write(lambda c: c.execute(insert(VISITS), rows))
    told = (await world.client(key(1)).get(f"/v1/sessions/{asked}/estimate")).json()
    each = ROUND_TRIP + 2 * 4 * RECORD_BYTES * PER_BYTE + 2 * PER_STEP
    assert told["seconds"] == pytest.approx(6 * each)
    assert told["holders"][0]["seconds"] == pytest.approx(2 * each)
    own = (await owner.get(f"/v1/sessions/{first}/estimate")).json()
    assert own["seconds"] is None, "a session is not told from itself"
    stranger = (await world.client(key(77)).get(f"/v1/sessions/{asked}/estimate")).status_code
    assert stranger in (401, 403)
