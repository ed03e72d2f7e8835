"""`python -m data_holder [--config FILE]`: one holder's process. Knows only settings and the application's factory."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI

from data_holder.api import create_app
from data_holder.settings import HolderSettings
from shared.service.migrations import downgrade
from shared.service.server import service_main


def main() -> int:
    """Run until SIGTERM; the ready line names the holder and the key that the orchestrator enrols."""
    built: list[FastAPI] = []

    def factory(settings: HolderSettings, base_url: str) -> FastAPI:
        built.append(create_app(settings, base_url))
        return built[0]

    def ready() -> Mapping[str, Any]:
        foundation = built[0].state.holder.foundation
        key = foundation.key
        return {
            "name": foundation.settings.name, "fingerprint": key.fingerprint, "public_key": key.public_pem.decode(),
        }  # fmt: skip

    def go_back(settings: HolderSettings, revision: str) -> None:
        downgrade(settings.store_url, "data_holder", revision)

    return service_main(HolderSettings, factory, ready=ready, go_back=go_back)


if __name__ == "__main__":
    sys.exit(main())
