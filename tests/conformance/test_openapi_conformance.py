"""Every service keeps to its own OpenAPI document: no server error, no undocumented answer, no answer that differs from its schema."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from tests.conformance.fuzzing import fuzz, operations
from tests.conformance.stage import GPU, HOLDER, Credentials, Stage, bearer, nobody, signed


def known(stage: Stage) -> dict[str, Sequence[Any]]:
    """Path parameters that exist in this world."""
    return {
        "session": list(stage.sessions.values()), "visit": [stage.visit], "gpu": [GPU], "port": ["orchestrator", "holder-x"],
        "name": [HOLDER, "ehr", f"holder-{HOLDER}"], "index": [0, 1], "channel": ["c_mzxw6ytboi2dcnbr"],
        "offer": ["o_mzxw6ytboi2dcnbr"],
        "digest": [stage.world.material.program, stage.weights],
    }  # fmt: skip


def for_holders(operation: str) -> bool:
    """Operations of the orchestrator that only holders may call."""
    holders = (
        "/inbox", "/heads", "/channels", "/channels/{channel}", "/share-offers", "/share-offers/{offer}", "/share-refusals",
        "/report", "/refusal", "/end",
    )  # fmt: skip
    return operation == "POST /v1/sessions/{session}/approvals" or operation.endswith(holders)


def for_cvms(operation: str) -> bool:
    """Operations of the platform that only a CVM may call."""
    return "/cvms/" in operation


def for_owners(operation: str) -> bool:
    """What an owner may call, but for one, which removes what other tests look at; tests/world/test_world_retention.py calls that."""
    return not for_holders(operation) and operation != "DELETE /v1/sessions/{session}"


def for_operators(operation: str) -> bool:
    """What an operator may call, but for one, which takes away the very token; tests/data_holder/test_holder_tokens.py calls that."""
    return operation != "PUT /v1/tokens/{whose}"


def anything(operation: str) -> bool:
    return True


@dataclass(frozen=True)
class Caller:
    """A caller with rights at one service: its credentials, what it may call, and how many random inputs per operation."""

    service: str
    credentials: Callable[[Stage], Credentials]
    only: Callable[[str], bool] = anything
    examples: int = 3
    may_be_unavailable: bool = False
    knows: Callable[[Stage], dict[str, Sequence[Any]]] = lambda _stage: {}


def operators_data(stage: Stage) -> dict[str, Sequence[Any]]:
    """What a dataset can be added of, inspected with and removed by: those of the settings are not the API's to change."""
    return {
        "body.path": [str(stage.world.folder / f"holder-{HOLDER}" / "ehr.npz")], "body.name": ["added"],
        "body.session": list(stage.sessions.values()), "name": ["added", "ehr"],
    }  # fmt: skip


CALLERS = {
    "owner": Caller("orchestrator", lambda s: signed(s.keys["owner"]), for_owners),
    # A channel belongs to a session that runs; for the others 503 says to wait.
    "holder": Caller("orchestrator", lambda s: signed(s.keys[HOLDER]), for_holders, may_be_unavailable=True),
    "operator": Caller(
        f"holder-{HOLDER}", lambda s: bearer(s.holder_tokens["operator"]), for_operators, knows=operators_data
    ),
    "platform": Caller("agent", lambda s: signed(s.keys["platform"])),
    "orchestrator": Caller("platform", lambda s: signed(s.keys["orchestrator"]), lambda name: not for_cvms(name)),
    "cvm": Caller("platform", lambda s: bearer(s.cvm_token), for_cvms, knows=lambda s: {"name": [f"holder-{HOLDER}"]}),
}
# Their sensible answers need what no random input is: a signature over a document, a record sealed with a key, a digest of the body.
NEVER_2XX = {
    "PUT /v1/parties/{name}/key", "PUT /v1/parties/{name}/replacement", "PUT /v1/parties/{name}/revocation",
    "POST /v1/sessions", "POST /v1/sessions/{session}/approvals", "POST /v1/sessions/{session}/channels",
    "POST /v1/sessions/{session}/heads", "POST /v1/sessions/{session}/share-offers",
    "PUT /v1/sessions/{session}/share-offers/{offer}", "POST /v1/sessions/{session}/share-refusals",
    "PUT /v1/sessions/{session}/channels/{channel}", "POST /v1/visits/{visit}/report",
    "PUT /v1/programs/{digest}/archive", "PUT /v1/weights/{digest}", "PUT /v1/validation-datasets/{digest}",
    "GET /v1/weights/{digest}", "GET /v1/validation-datasets/{digest}",
    "POST /v1/dry-run/sessions", "POST /v1/dry-run/parties/{name}/key", "POST /v1/dry-run/parties/{name}/replacement",
    *(f"POST /v1/dry-run/sessions/{{session}}/{word}" for word in ("pause", "resume", "cancel")),
    *(f"POST /v1/dry-run/requests/{{session}}/{word}" for word in ("approve", "refuse", "veto")),
    # Only of sessions that one goes on from, or that go on: tests/successors.
    "GET /v1/sessions/{session}/continuation", "GET /v1/sessions/{session}/predecessor",
    "POST /v1/sessions/{session}/pause", "POST /v1/sessions/{session}/resume",
    "POST /v1/requests/{session}/approve", "POST /v1/requests/{session}/refuse", "POST /v1/requests/{session}/veto",
    "POST /v1/gpus/{gpu}/ports/{port}/commands", "POST /v1/gpus/{gpu}/ports/{port}/copy",
    "POST /v1/gpus/{gpu}/ports/{port}/bounce",
    "POST /v1/visits/{visit}/refusal",
    # Only whoever launched a CVM knows the launch's number.
    "POST /cvms/{name}/derived-key", "POST /cvms/{name}/quote", "POST /cvms/{name}/extend",
    "POST /v1/gpus/{gpu}/ports/{port}/staging",
    # The emulated GPU's evidence is asked inside its SPDM session.
    "POST /v1/gpus/{gpu}/evidence",
}  # fmt: skip


THOROUGH = pytest.mark.parametrize(
    "coverage", [pytest.param(False, id="usual"), pytest.param(True, id="each boundary", marks=pytest.mark.slow)]
)
"""Requests at each boundary of each parameter are nine of ten."""


@THOROUGH
@pytest.mark.parametrize("who", CALLERS)
def test_a_caller_with_rights(stage: Stage, who: str, coverage: bool) -> None:
    caller = CALLERS[who]
    document = stage.openapi(caller.service)
    door = stage.door(caller.service, caller.credentials(stage))
    found = fuzz(
        door, document, {**known(stage), **caller.knows(stage)}, caller.examples, caller.only,
        may_be_unavailable=caller.may_be_unavailable, coverage=coverage,
    )  # fmt: skip
    wanted = {name for name in operations(document) if caller.only(name)}
    assert not found.failures, found.text()
    assert set(found.answers) == wanted
    # Otherwise the run would have looked at refusals only. Of a few requests not each meets the one session that it could do something to.
    good = wanted - NEVER_2XX
    done = good & found.operations_with(2)
    assert done == good if coverage else 2 * len(done) >= len(good), {n: dict(found.answers[n]) for n in good - done}


@THOROUGH
@pytest.mark.parametrize("service", ["orchestrator", f"holder-{HOLDER}", "agent", "platform"])
def test_a_caller_without_credentials(stage: Stage, service: str, coverage: bool) -> None:
    door = stage.door(service, nobody)
    found = fuzz(door, stage.openapi(service), known(stage), examples=1, coverage=coverage)
    assert not found.failures, found.text()
    probes = {"GET /livez", "GET /readyz", "GET /version"}
    open_to_all = {name for name in operations(stage.openapi("agent")) if service == "agent"}
    assert found.operations_with(2) <= probes | open_to_all
    assert found.operations_with(2) >= probes
