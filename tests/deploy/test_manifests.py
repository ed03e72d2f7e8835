"""Compose files and Kubernetes manifests: hardened as the security page says, valid, and with settings that the services have."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from starlette.routing import Route

from data_holder.settings import HolderSettings
from gpu_agent.settings import AgentSettings
from orchestrator.settings import OrchestratorSettings
from shared.service.app import create_service_app
from shared.service.key_file import open_to_others
from shared.service.settings import ServiceSettings

DEPLOY = Path(__file__).parents[2] / "deploy"
COMPOSE = sorted((DEPLOY / "compose").glob("*.yml"))
KUBERNETES = DEPLOY / "kubernetes"
OVERLAYS = sorted(path.parent for path in KUBERNETES.glob("overlays/*/kustomization.yaml"))
SETTINGS: dict[str, type[ServiceSettings]] = {
    "orchestrator": OrchestratorSettings, "holder": HolderSettings, "data-holder": HolderSettings, "gpu-agent": AgentSettings,
}  # fmt: skip
KUBERNETES_VERSION = "1.31"


def _services() -> Iterator[Any]:
    for path in COMPOSE:
        for name, service in yaml.safe_load(path.read_text())["services"].items():
            yield pytest.param(path, service, id=f"{path.stem}-{name}")


@pytest.mark.parametrize(("path", "service"), list(_services()))
def test_a_compose_service_is_hardened(path: Path, service: dict[str, Any]) -> None:
    assert service["restart"] == "unless-stopped"
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["ulimits"] == {"core": 0}
    assert int(service["user"].partition(":")[0]) > 0
    assert service["deploy"]["resources"]["limits"].keys() == {"cpus", "memory", "pids"}
    assert service["healthcheck"]["test"][0] == "CMD"
    assert not service.keys() & {"privileged", "cap_add", "network_mode", "pid", "ipc", "devices"}
    for name, value in service.get("environment", {}).items():
        assert not re.search(r"PASSWORD|SECRET|TOKEN|KEY", name) or value.startswith("/run/secrets/"), name
    assert not [mount for mount in service.get("volumes", ()) if "docker.sock" in mount]


@pytest.mark.parametrize("path", COMPOSE, ids=lambda path: path.stem)
def test_a_compose_file_hangs_together(path: Path) -> None:
    told = yaml.safe_load(path.read_text())
    for service in told["services"].values():
        assert set(service.get("networks", ())) <= told["networks"].keys()
        assert set(service.get("secrets", ())) <= told["secrets"].keys()
        assert service.get("depends_on", {}).keys() <= told["services"].keys()
        named = [mount.partition(":")[0] for mount in service.get("volumes", ())]
        assert {mount for mount in named if mount[0].isalnum()} <= told["volumes"].keys()
        assert [
            mount for mount in named if len(mount) == 1 and mount.isalpha()
        ] == []  # compose takes it for a drive of Windows
        for variable in service.get("environment", {}):
            if variable.startswith("GPUT_ORCHESTRATOR_"):
                assert variable.removeprefix("GPUT_ORCHESTRATOR_").lower() in OrchestratorSettings.model_fields
    for secret in told["secrets"].values():
        assert not (path.parent / secret["file"]).exists()  # nobody's secret is in the repository
    if "database" in told["services"]:
        assert told["networks"]["database"]["internal"] is True
        assert "ports" not in told["services"]["database"]
        assert {"orchestrator-a", "orchestrator-b"} <= told["services"].keys()


def test_tls_starts_no_more_processes_than_its_container_may_have_on_a_machine_of_many_cores() -> None:
    service = yaml.safe_load((DEPLOY / "compose" / "orchestrator.yml").read_text())["services"]["tls"]
    workers = re.search(r"^worker_processes (\S+);", (DEPLOY / "compose" / "nginx.conf").read_text(), re.MULTILINE)
    assert workers is not None
    cores = 192  # `auto` is as many workers as the machine has cores
    started = cores if workers[1] == "auto" else int(workers[1])
    assert started + 2 < service["deploy"]["resources"]["limits"]["pids"]  # beside init and nginx itself


@pytest.mark.skipif(shutil.which("docker") is None, reason="no docker here")
@pytest.mark.parametrize("path", COMPOSE, ids=lambda path: path.stem)
def test_docker_reads_a_compose_file(path: Path) -> None:
    # Asked for its version first: a docker without the plugin says of the next call's options that it knows none of them.
    if subprocess.run(["docker", "compose", "version"], capture_output=True, check=False).returncode:
        pytest.skip("docker without compose")
    said = subprocess.run(
        ["docker", "compose", "-f", str(path), "config", "-q"], capture_output=True, check=False, text=True
    )
    assert (said.returncode, said.stderr) == (0, "")


@pytest.mark.parametrize("path", sorted(DEPLOY.rglob("*.toml")), ids=lambda path: str(path.relative_to(DEPLOY)))
def test_a_settings_file_is_of_settings_that_there_are(path: Path) -> None:
    loaded = SETTINGS[path.stem].load(path)
    assert loaded.allow_emulated is False
    values = tomllib.loads(path.read_text())
    assert not re.search(r"password *=|://[^@/]*:[^@/]*@", path.read_text())
    assert values["metrics_port"] == 9090 if "metrics_port" in values else path.parent.name == "compose"


def _kubernetes_settings() -> dict[str, dict[str, Any]]:
    return {path.stem: tomllib.loads(path.read_text()) for path in sorted((KUBERNETES / "base").rglob("*.toml"))}


@pytest.mark.parametrize("path", sorted(DEPLOY.rglob("*.toml")), ids=lambda path: str(path.relative_to(DEPLOY)))
def test_what_derives_no_sealing_key_is_given_one(path: Path) -> None:
    values = tomllib.loads(path.read_text())
    if values.get("evidence", "").startswith("configfs-tsm:"):
        assert values["sealing_key_file"].startswith("/run/secrets/")  # without it the service refuses to start


def _documents(text: str) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all(text) if document]


def _base() -> list[dict[str, Any]]:
    paths = [path for path in sorted(KUBERNETES.rglob("*.yaml")) if path.name != "kustomization.yaml"]
    return [document for path in paths for document in _documents(path.read_text())]


def _rendered(overlay: Path) -> list[dict[str, Any]]:
    if shutil.which("kubectl") is None:
        pytest.skip("no kubectl here")
    said = subprocess.run(["kubectl", "kustomize", str(overlay)], capture_output=True, check=False, text=True)
    assert said.returncode == 0, said.stderr
    return _documents(said.stdout)


def _check_pod(workload: dict[str, Any]) -> None:
    pod = workload["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not pod.keys() & {"hostNetwork", "hostPID", "hostIPC"}
    assert not [volume for volume in pod["volumes"] if "hostPath" in volume]
    mounted = {mount["name"] for container in pod["containers"] for mount in container["volumeMounts"]}
    claims = {claim["metadata"]["name"] for claim in workload["spec"]["volumeClaimTemplates"]}
    assert mounted == {volume["name"] for volume in pod["volumes"]} | claims
    for container in pod["containers"]:
        context = container["securityContext"]
        assert context["allowPrivilegeEscalation"] is False
        assert context["readOnlyRootFilesystem"] is True
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert container["livenessProbe"]["httpGet"]["path"] == "/livez"
        stands_by = "/livez" if container["name"] == "orchestrator" else "/readyz"
        assert container["readinessProbe"]["httpGet"]["path"] == stands_by
        assert {"cpu", "memory"} <= container["resources"]["limits"].keys()


def test_every_workload_is_hardened_and_has_a_policy() -> None:
    documents = _base()
    workloads = [document for document in documents if document["kind"] == "StatefulSet"]
    assert {workload["metadata"]["name"] for workload in workloads} == {"orchestrator", "data-holder", "gpu-agent"}
    policies = {
        document["metadata"]["name"]: document["spec"] for document in documents if document["kind"] == "NetworkPolicy"
    }
    assert policies["default-deny"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    for workload in workloads:
        _check_pod(workload)
        labels = workload["spec"]["template"]["metadata"]["labels"]
        assert policies[workload["metadata"]["name"]]["podSelector"]["matchLabels"].items() <= labels.items()


def test_probes_ask_what_the_services_answer_at_ports_that_they_listen_on(tmp_path: Path) -> None:
    app = create_service_app("probed", "0", settings=ServiceSettings(data_dir=tmp_path))
    answered = {route.path for route in app.routes if isinstance(route, Route)}
    settings = _kubernetes_settings()
    for workload in (document for document in _base() if document["kind"] == "StatefulSet"):
        name = workload["metadata"]["name"]
        [container] = workload["spec"]["template"]["spec"]["containers"]
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        assert ports == {"http": settings[name]["port"], "metrics": settings[name]["metrics_port"]}
        for kind in ("livenessProbe", "readinessProbe", "startupProbe"):
            asked = container[kind]["httpGet"]
            assert asked["path"] in answered, (name, kind)
            assert asked["port"] in ports, (name, kind)


def test_every_file_that_settings_name_is_mounted_and_secrets_are_told_of() -> None:
    settings = _kubernetes_settings()
    told = "".join(path.read_text() for path in KUBERNETES.glob("overlays/*/kustomization.yaml"))
    for workload in (document for document in _base() if document["kind"] == "StatefulSet"):
        [container] = workload["spec"]["template"]["spec"]["containers"]
        mounted = [mount["mountPath"] for mount in container["volumeMounts"]]
        values = settings[workload["metadata"]["name"]]
        named = [value for key, value in values.items() if key.endswith(("_file", "_dir", "_keys"))]
        assert named
        for path in named:
            assert any(path == place or path.startswith(f"{place}/") for place in mounted), path
            if path.startswith("/run/secrets/"):
                assert Path(path).name in told, path


def test_a_secret_that_is_mounted_as_kubernetes_does_is_accepted() -> None:
    """Secrets are root's and readable by the pod's group: a service that is not root must take them so."""
    for workload in (document for document in _base() if document["kind"] == "StatefulSet"):
        pod = workload["spec"]["template"]["spec"]
        for volume in pod["volumes"]:
            if "secret" in volume:
                assert pod["securityContext"]["fsGroup"] == pod["securityContext"]["runAsGroup"]
                assert not open_to_others(volume["secret"]["defaultMode"], 0, pod["securityContext"]["runAsUser"])


def test_kustomizations_name_files_that_there_are_and_bases_that_have_what_they_change() -> None:
    found = sorted(KUBERNETES.rglob("kustomization.yaml"))
    assert len(found) >= 6
    for path in found:
        told = yaml.safe_load(path.read_text())
        for resource in told["resources"]:
            place = path.parent / resource
            assert place.is_file() or (place / "kustomization.yaml").is_file(), place
        for generated in told.get("configMapGenerator", ()):
            assert [file for file in generated["files"] if not (path.parent / file).is_file()] == []
        reached = list(_reached(path.parent))
        known = {(d["kind"], d["metadata"]["name"]) for d in reached}
        for patch in told.get("patches", ()):
            assert (patch["target"]["kind"], patch["target"]["name"]) in known
        used = {
            container["image"]
            for d in reached
            if d["kind"] == "StatefulSet"
            for container in d["spec"]["template"]["spec"]["containers"]
        }
        assert {image["name"] for image in told.get("images", ())} <= used


def _reached(folder: Path) -> Iterator[dict[str, Any]]:
    """Every document of a kustomization and of those it builds on, as they are before any patch."""
    for resource in yaml.safe_load((folder / "kustomization.yaml").read_text())["resources"]:
        if (folder / resource).is_file():
            yield from _documents((folder / resource).read_text())
        else:
            yield from _reached((folder / resource).resolve())


def test_a_holder_reaches_its_orchestrator_and_gpu_and_nobody_reaches_a_holder() -> None:
    policies = {d["metadata"]["name"]: d["spec"] for d in _base() if d["kind"] == "NetworkPolicy"}
    holder = policies["data-holder"]
    reached = [to["podSelector"]["matchLabels"] for rule in holder["egress"] for to in rule["to"]]
    assert [label.get("app.kubernetes.io/name") or label.get("k8s-app") for label in reached] == [
        "kube-dns",
        "orchestrator",
        "gpu-agent",
    ]
    assert all(rule["ports"] for rule in holder["egress"])
    assert [rule["ports"] for rule in holder["ingress"]] == [[{"port": "metrics"}]]
    assert policies["gpu-agent"]["egress"] == []
    for spec in policies.values():
        for rule in (*spec.get("ingress", ()), *spec.get("egress", ())):
            assert rule.get("from") or rule.get("to")  # a rule without peers allows everybody
            assert "ipBlock" not in str(rule)


@pytest.mark.parametrize("overlay", OVERLAYS, ids=lambda overlay: overlay.name)
def test_an_overlay_renders_to_valid_manifests(overlay: Path) -> None:
    documents = _rendered(overlay)
    maps = {d["metadata"]["name"] for d in documents if d["kind"] == "ConfigMap"}
    assert {d["metadata"].get("namespace") for d in documents if d["kind"] != "Namespace"} == {f"gput-{overlay.name}"}
    for document in documents:
        if document["kind"] == "StatefulSet":
            _check_pod(document)
            pod = document["spec"]["template"]["spec"]
            assert pod["runtimeClassName"] == "kata-qemu-tdx"
            assert pod["containers"][0]["image"].endswith(":0.1.0")
            [config] = [volume["configMap"]["name"] for volume in pod["volumes"] if volume["name"] == "config"]
            assert config in maps  # under the name with its content's hash, so that a change restarts the pods
        elif document["kind"] == "ConfigMap":
            for name, text in document["data"].items():
                loaded = SETTINGS[name.removesuffix(".toml")].model_validate(tomllib.loads(text))
                assert loaded.host == "0.0.0.0"


@pytest.mark.parametrize("overlay", [None, *OVERLAYS], ids=lambda overlay: overlay.name if overlay else "base")
def test_manifests_are_of_kubernetes_own_schema(overlay: Path | None) -> None:
    validator = pytest.importorskip("kubernetes_validate")
    documents = _base() if overlay is None else _rendered(overlay)
    assert documents
    for document in documents:
        validator.validate(document, KUBERNETES_VERSION, strict=True)
    broken = next(document for document in documents if document["kind"] in ("StatefulSet", "NetworkPolicy"))
    with pytest.raises(validator.ValidationError):
        validator.validate({**broken, "spec": {**broken["spec"], "replicsa": 2}}, KUBERNETES_VERSION, strict=True)
