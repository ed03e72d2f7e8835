"""`python -m orchestrator`: start the service. Knows nothing else."""

from __future__ import annotations

import sys

from fastapi import FastAPI

from orchestrator.app import create_app
from orchestrator.identity import rotate_identity
from orchestrator.lease.keeper import go_back
from orchestrator.settings import OrchestratorSettings
from orchestrator.site import holder
from shared.service.clock import system_entropy
from shared.service.server import service_main
from shared.service.store import Store
from shared.turns import go_first

RECOVER = (
    "take over from an orchestrator that is lost for good, though it had another CVM or release; "
    "its sessions then wait for their holders' shares"
)
ROTATE = "put a new key in the identity's place, between sessions, and end; serves nothing"


def main() -> int:
    """Run until told to stop; the exit code says how it ended."""
    return service_main(
        OrchestratorSettings, create_app, go_back=_go_back, variants={"recover": (RECOVER, _recovering)},
        acts={"rotate-identity": (ROTATE, rotate_identity)},
    )  # fmt: skip


def _recovering(settings: OrchestratorSettings, base_url: str) -> FastAPI:
    return create_app(settings, base_url, recover=True)


def _go_back(settings: OrchestratorSettings, revision: str) -> None:
    store = Store(settings.store_url)
    go_back(store, settings.files_dir, lambda: holder(settings, system_entropy), revision)


if __name__ == "__main__":
    go_first()
    sys.exit(main())
