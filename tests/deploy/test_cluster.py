"""What the Kubernetes manifests come to on a cluster: who answers to which address, who counts as up, what the images bring."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from starlette.requests import Request

from gpu_agent.evidence.nvml import MODULE
from shared.errors import NotAuthenticated
from shared.service.callers import request_parts
from shared.service.settings import ServiceSettings

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


def _env(container: Any, pod: str, namespace: str) -> dict[str, str]:
    """A container's variables as Kubernetes makes them: a value may name those that stand before it."""
    made: dict[str, str] = {}
    fields = {"metadata.name": pod, "metadata.namespace": namespace}
    for one in container["env"]:
        value = one["value"] if "value" in one else fields[one["valueFrom"]["fieldRef"]["fieldPath"]]
        made[one["name"]] = re.sub(r"\$\((\w+)\)", lambda found: made.get(found[1], found[0]), value)
    return made


def _sites() -> list[tuple[str, tuple[str, ...]]]:
    """(pod, the addresses that its orchestrator answers to), of the overlay `site`."""
    told = yaml.safe_load((KUBERNETES / "overlays" / "site" / "kustomization.yaml").read_text())
    pods = [f"orchestrator-{number}" for number in range(_found("StatefulSet", "orchestrator")["replicas"])]
    made = [_env(_container("orchestrator"), pod, told["namespace"])["GPUT_ORCHESTRATOR_PUBLIC_URL"] for pod in pods]
    urls = [ServiceSettings(data_dir=ROOT, public_url=value).public_urls for value in made]
    return list(zip(pods, urls, strict=True))


def _asked(url: str, path: str, answers_to: tuple[str, ...]) -> str:
    """The address that a request to `url` counts as signed for. Raises: NotAuthenticated where the service does not answer to that name."""
    host = url.partition("://")[2]
    scope = {"type": "http", "method": "GET", "path": path, "headers": [(b"host", host.encode())]}
    return request_parts(Request(scope), answers_to).target_uri


@pytest.mark.parametrize("path", sorted(KUBERNETES.rglob("data-holder.toml")), ids=lambda path: path.parent.name)
def test_each_orchestrator_answers_to_the_address_that_holders_sign_for(path: Path) -> None:
    asked = tomllib.loads(path.read_text())["orchestrator_url"].split(",")
    for url, (_, answers_to) in zip(asked, _sites(), strict=True):
        assert _asked(url, "/v1/inbox", answers_to) == f"{url}/v1/inbox"


def test_each_orchestrator_answers_to_the_address_that_owners_sign_for_at_the_ingress_and_to_no_others() -> None:
    told = yaml.safe_load((KUBERNETES / "overlays" / "site" / "kustomization.yaml").read_text())["patches"]
    [patch] = [yaml.safe_load(one["patch"]) for one in told if one["target"]["name"] == "orchestrator"]
    replaced = {one["path"]: one["value"] for one in patch if one["op"] == "replace"}
    [domain] = [value for path, value in replaced.items() if path.endswith("/env/2/value")]
    assert _container("orchestrator")["env"][2] == {"name": "OWNERS_DOMAIN", "value": domain}
    for pod, answers_to in _sites():
        url = f"https://{pod}.{domain}"
        assert _asked(url, "/v1/sessions", answers_to) == f"{url}/v1/sessions"
        with pytest.raises(NotAuthenticated):
            _asked(f"https://{domain}", "/v1/sessions", answers_to)


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


def _installed(stage: str, extras: str = "") -> str:
    """The requirements that a stage of the Dockerfile installs by `docker/dependencies.py`, and those of the stages that it is made of.

    Args:
        extras: the build argument EXTRAS.
    """
    stages = re.split(r"^FROM ", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE)[1:]
    found = next(text for text in stages if re.search(rf"^\S+ AS {stage}$", text, re.MULTILINE))
    below = re.match(r"\S+", found)
    assert below is not None
    lower = {below[0], *re.findall(r"^COPY --from=(\S+)", found, re.MULTILINE)}
    own = [
        subprocess.run([sys.executable, *words.split()], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        for words in _asked_for(found, extras)
    ]
    known = {name for text in stages for name in re.findall(r"^\S+ AS (\S+)$", text, re.MULTILINE)}
    return "\n".join([*own, *(_installed(name, extras) for name in sorted(lower & known))])


def _asked_for(stage: str, extras: str) -> list[str]:
    """How a stage calls `docker/dependencies.py`; what stands behind `if [ -n "$EXTRAS" ]` only where there are some."""
    called = re.findall(r"python (docker/dependencies\.py.*?) >", stage)
    assert all('[ -n "$EXTRAS" ]' in stage for words in called if "$EXTRAS" in words)
    return [words.replace("$EXTRAS", extras) for words in called if extras or "$EXTRAS" not in words]


def test_the_agents_image_brings_what_its_settings_ask_for() -> None:
    settings = tomllib.loads((KUBERNETES / "base" / "gpu-agent" / "gpu-agent.toml").read_text())
    _, _, image = _container("gpu-agent")["image"].partition("/")
    assert (settings["evidence"], image, MODULE) == ("nvml:0", "gpu", "pynvml")
    lines = _installed(image).splitlines()
    assert [
        line for line in lines if line.startswith("nvidia-ml-py")
    ]  # has that module; without it the agent refuses to start
    assert [line for line in lines if line.startswith("fastapi")]
    assert "nvidia" not in _installed("service")


def test_an_image_brings_the_optional_parts_that_its_build_asks_for_and_no_others() -> None:
    """A service that is told to send traces refuses to start without them, and nobody can install into a read-only container."""
    traced = _installed("service", extras="tracing")
    assert [line for line in traced.splitlines() if line.startswith("opentelemetry-exporter")]
    assert set(_installed("service").splitlines()) < set(traced.splitlines())
    assert "opentelemetry" not in _installed("service")
    assert "EXTRAS=tracing" in (ROOT / "deploy" / "compose" / "README.md").read_text()


def test_no_build_asks_the_registry_for_an_image_by_a_contexts_name() -> None:
    text = (ROOT / "Dockerfile").read_text()
    stages = re.findall(r"^FROM \S+ AS (\S+)$", text, re.MULTILINE)
    # What is neither a stage nor a context given by hand is fetched from the registry under that name, and its root's files are taken.
    assert {name for name in re.findall(r"\bfrom=([\w.-]+)", text) if name not in stages} == set()
    assert set(re.findall(r"^FROM (\S+)", text, re.MULTILINE)) - set(stages) == {"scratch", "python:3.11-slim-bookworm"}
