"""Python client, command line and local launcher of GPU Travelling. Knows services by their HTTP interfaces only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gput.client import AsyncClient
    from gput.trust import UNATTESTED, Trust
    from gput.waiting import Client

__all__ = ["UNATTESTED", "AsyncClient", "Client", "Trust"]
_HOMES = {"AsyncClient": "gput.client", "Client": "gput.waiting", "Trust": "gput.trust", "UNATTESTED": "gput.trust"}


def __getattr__(name: str) -> Any:
    # Loaded on first use, so that `gput --help` and a plain import stay fast.
    if name in _HOMES:
        import importlib

        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'gput' has no attribute {name!r}")
