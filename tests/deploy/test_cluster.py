"""What the Kubernetes manifests come to on a cluster: who answers to which address, who counts as up."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from starlette.requests import Request

from shared.service.callers import request_parts

ROOT = Path(__file__).parents[2]
KUBERNETES = ROOT / "deploy" / "kubernetes"


def _found(kind: str, name: str) -> Any:
    """`spec` of one object of the bases."""
    for path in (KUBERNETES / "base").rglob("*.yaml"):
        for document in yaml.safe_load_all(path.read_text()):
            if (document["kind"], document.get("metadata", {}).get("name")) == (kind, name):
                return document["spec"]
    raise AssertionError(f"no {kind} {name}")


def _container(name: str) -> Any:
    [container] = _found("StatefulSet", name)["template"]["spec"]["containers"]
    return container


@pytest.mark.parametrize("path", sorted(KUBERNETES.rglob("data-holder.toml")), ids=lambda path: path.parent.name)
def test_each_orchestrator_answers_to_the_address_that_holders_sign_for(path: Path) -> None:
    told = next(
        one["value"] for one in _container("orchestrator")["env"] if one["name"] == "GPUT_ORCHESTRATOR_PUBLIC_URL"
    )
    site = yaml.safe_load((KUBERNETES / "overlays" / "site" / "kustomization.yaml").read_text())["namespace"]
    pods = [f"orchestrator-{number}" for number in range(_found("StatefulSet", "orchestrator")["replicas"])]
    public = [told.replace("$(POD)", pod).replace("$(NAMESPACE)", site) for pod in pods]
    asked = tomllib.loads(path.read_text())["orchestrator_url"].split(",")
    for url, answers_to in zip(asked, public, strict=True):
        host = url.partition("://")[2]
        scope = {"type": "http", "method": "GET", "path": "/v1/inbox", "headers": [(b"host", host.encode())]}
        # Raises NotAuthenticated where the service does not answer to that name.
        assert request_parts(Request(scope), (answers_to,)).target_uri == f"{url}/v1/inbox"


STANDBY_ANSWERS = {"/livez": 200, "/readyz": 503}
"""As `tests/world/test_world_standby.py` has it of a real one."""


def test_a_node_can_be_drained_of_the_leader_and_an_update_goes_on_past_the_standby() -> None:
    pods, budget = _found("StatefulSet", "orchestrator"), _found("PodDisruptionBudget", "orchestrator")
    ready = _container("orchestrator")["readinessProbe"]["httpGet"]["path"]
    standbys = pods["replicas"] - 1
    up = 1 + standbys * (STANDBY_ANSWERS[ready] == 200)
    assert up - budget["minAvailable"] >= 1  # else the leader is never evicted
    assert pods.get("updateStrategy", {}).get("type", "RollingUpdate") == "RollingUpdate"
    assert up == pods["replicas"]  # a rolling update waits for each pod to be ready before it goes to the next
    # Nobody is sent elsewhere by it: callers name each pod, and ask whichever of them leads.
    assert _found("Service", "orchestrator")["publishNotReadyAddresses"] is True
