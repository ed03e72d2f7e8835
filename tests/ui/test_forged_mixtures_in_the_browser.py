"""Logs of collected tours, judged by the browser and by `gput receipts verify`: what is said of the mixture that they trained in."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from gput.local.receipts_bench import BATCH, STEPS
from shared.claims.receipt import Mixed
from shared.protocol.mixture import mixture_seed
from tests.gput.forged_logs import Forger, Visited
from tests.ui.test_forged_logs_in_the_browser import held_by_gput
from tests.ui.test_receipts_in_the_browser import CHECK

OWN = STEPS * BATCH
MODELS = "a" * 64, "b" * 64


@pytest.fixture(scope="module")
def forger(tmp_path_factory: pytest.TempPathFactory) -> Forger:
    """A session of two rounds that collects tours."""
    folder = tmp_path_factory.mktemp("mixtures")
    with ThreadPoolExecutor(1) as beside:  # what drives the browser has an event loop in this thread
        return beside.submit(Forger, folder, rounds=2, collect="tour").result()


def tour(forger: Forger, **changes: Any) -> list[Visited]:
    """The first round's three visits. `changes`: of what each says of its mixture."""
    usual = {"round": 1, "seed": mixture_seed(forger.manifest.training.seed, 1), "visits": 3, "records": 3 * OWN}
    before, after = MODELS
    return [
        Visited(stop, said={
            "mixed": Mixed.model_construct(**usual, first=(stop - 1) * OWN).model_copy(update=changes),
            "steps": 3 * STEPS, "first_step": 0, "model_before": before, "model_after": after,
        })
        for stop in (1, 2, 3)
    ]  # fmt: skip


def test_a_whole_tour_holds_in_both(page: Any, forger: Forger) -> None:
    bundle = forger.bundle(*tour(forger))
    assert (page.evaluate(CHECK, bundle), held_by_gput(forger, bundle)) == ([], True)


FORGED: dict[str, tuple[dict[str, Any], str]] = {
    "of another round": ({"round": 2}, "of another round than the visit"),
    "of no round": ({"round": 0}, "round is no count from 1 on"),
    "of no visit": ({"visits": 0}, "visits is no count from 1 on"),
    "of no record": ({"records": 0}, "records is no count from 1 on"),
}  # fmt: skip


@pytest.mark.parametrize("name", FORGED)
def test_another_mixture_than_the_plan_has_is_refused_by_both(page: Any, forger: Forger, name: str) -> None:
    changes, named = FORGED[name]
    bundle = forger.bundle(*tour(forger, **changes))
    assert any(named in line for line in page.evaluate(CHECK, bundle))
    assert not held_by_gput(forger, bundle)


def test_a_visit_by_itself_is_refused_by_both_where_tours_are_collected(page: Any, forger: Forger) -> None:
    bundle = forger.bundle(Visited(1))
    (found,) = page.evaluate(CHECK, bundle)
    assert "trained on in none, though tours are collected" in found
    assert not held_by_gput(forger, bundle)
