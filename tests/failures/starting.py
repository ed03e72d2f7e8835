"""Starting each service as its process does, up to the point where it would serve. Knows no failure."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI

from data_holder.api import create_app as holder_app
from data_holder.settings import HolderSettings
from gpu_agent.api import create_app as agent_app
from gpu_agent.platform.api import create_platform_app
from gpu_agent.platform.settings import PlatformSettings
from gpu_agent.settings import AgentSettings
from gput.local.installation import GPU, HolderSpec, Installation, to_toml
from orchestrator.app import create_app as orchestrator_app
from orchestrator.settings import OrchestratorSettings
from shared.service.server import service_main

SERVICES: dict[str, tuple[Any, Any]] = {
    "agent": (AgentSettings, agent_app), "platform": (PlatformSettings, create_platform_app),
    "orchestrator": (OrchestratorSettings, orchestrator_app), "holder": (HolderSettings, holder_app),
}  # fmt: skip
NOWHERE = "http://127.0.0.1:9"
CONFIGURATION, UNAVAILABLE = 2, 6
STARTED = 5
"""The exit code of `start` when nothing was refused: `Started` is no error that a service knows."""


class Started(Exception):
    """The service would have started."""


def settings_of(service: str, place: Path) -> dict[str, Any]:
    evidence = lambda cvm: {  # noqa: E731 (two users, three lines)
        "evidence": f"emulated:{NOWHERE}/cvms/{cvm}", "evidence_token_file": place / "cvms" / f"{cvm}.token",
        "trust_dir": place / "trust", "allow_emulated": True,
    }  # fmt: skip
    return {
        "agent": {"data_dir": place / "agent", "device_dir": place / "devices" / GPU,
                  "platform_key": place / "platform" / "mux.pub", "hbm_bytes": 1 << 28},
        "platform": {"data_dir": place, "agent_url": NOWHERE, "orchestrator_key": place / "orchestrator" / "orchestrator.pub"},
        "orchestrator": {"data_dir": place / "orchestrator", "owner_keys": place / "owners", "agent_url": NOWHERE,
                         "platform_url": NOWHERE, **evidence("orchestrator")},
        "holder": {"name": "city", "data_dir": place / "holder-city", "orchestrator_url": NOWHERE, **evidence("holder-city")},
    }[service]  # fmt: skip


def start(service: str, place: Path, toml: str) -> int:
    """Exactly what the process's main does, up to the point where it would serve."""
    kind, create = SERVICES[service]
    config = place / "config.toml"
    config.write_text(toml)

    def factory(settings: Any, base_url: str) -> FastAPI:
        create(settings, base_url)
        raise Started

    return service_main(kind, factory, ["--config", str(config)])


def refused(capsys: Any, service: str, place: Path, changes: Mapping[str, Any]) -> tuple[int, str]:
    merged = {**settings_of(service, place), **changes}
    code = start(service, place, to_toml({key: value for key, value in merged.items() if value is not None}))
    return code, two_lines(capsys)


def two_lines(capsys: Any) -> str:
    captured = capsys.readouterr()
    lines = [line for line in captured.err.splitlines() if not line.startswith("{") and "EMULATED" not in line]
    assert captured.out == "", "no ready line"
    assert len([line for line in lines if line.startswith("error: ")]) == 1, captured.err
    assert len([line for line in lines if line.startswith("remedy: ")]) == 1, captured.err
    assert "Traceback" not in captured.err
    return "\n".join(line for line in lines if line.startswith(("error: ", "remedy: ")))


EVERYWHERE = sorted(SERVICES)


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A manufactured installation that every case copies."""
    folder = tmp_path_factory.mktemp("made") / "installation"
    Installation(folder, [HolderSpec("city", {})]).prepare()
    return folder


@pytest.fixture
def place(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "it"))
