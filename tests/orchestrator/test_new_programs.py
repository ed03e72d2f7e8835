"""Programs are held to what no new one may hold where they come in, and there only: a session that was accepted goes on with its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any
from unittest.mock import patch

import pytest
from torch import nn

from gpu_agent.workload.builder import build
from shared.claims.archive import open_archive
from shared.claims.program import InitRule, SeedInit
from tests.orchestrator.orchestrator_samples import manifest, signed
from tests.orchestrator.orchestrator_world import ARCHIVE, OWNER, World, prepared, put
from tests.workload.user_models import IDS, looked_up, source_of, with_sparse_gradients
from tests.workload.workload_helpers import repack


@cache
def sparse() -> bytes:
    seeded = SeedInit(seed=7, rules=(InitRule(name="weight", kind="normal", std=0.5),))
    return with_sparse_gradients(build(replace(source_of(nn.Embedding(10, 3), looked_up, IDS), init=seeded))[0])


def beyond() -> bytes:
    def change(declared: dict[str, Any], *_: dict[str, Any]) -> None:
        declared["initial_weights"]["rules"][0]["std"] = 1e300

    return repack(ARCHIVE, change)


CASES: dict[str, Callable[[], bytes]] = {"sparse gradients": sparse, "a number that float32 does not hold": beyond}


@pytest.mark.parametrize("words", CASES)
async def test_a_new_one_is_refused_at_its_upload(world: World, words: str) -> None:
    owner, data = await prepared(world), CASES[words]()
    path = f"/v1/programs/{open_archive(data).digest.hex()}"
    refused = await put(owner, f"{path}/archive", data)
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid-program")
    assert words in refused.json()["detail"]
    assert refused.json()["remedy"]
    assert (await owner.get(path)).status_code == 404


@pytest.mark.parametrize("made", CASES.values(), ids=CASES)
async def test_one_from_before_the_rule_opens_and_is_trained_again(world: World, made: Callable[[], bytes]) -> None:
    """Its owner uploads what a session names as ever, also where a successor goes on with it."""
    owner, data = await prepared(world), made()
    digest = open_archive(data).digest.hex()
    path = f"/v1/programs/{digest}/archive"
    with patch("orchestrator.library.check_new", lambda *_: None):
        assert (await put(owner, path, data)).status_code == 201
    assert (await put(owner, path, data)).status_code == 200
    document = manifest(program=digest).canonical()
    said = signed(OWNER, "gput/manifest", document).model_dump()
    created = await owner.post("/v1/sessions", json=said, headers={"idempotency-key": "once"})
    assert (created.status_code, created.json()["phase"]) == (201, "AWAITING_APPROVAL")
