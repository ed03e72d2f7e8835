"""Python client, command line and local launcher of GPU Travelling. Knows services by their HTTP interfaces only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gput.client import AsyncClient, Client

__all__ = ["AsyncClient", "Client"]


def __getattr__(name: str) -> Any:
    # Loaded on first use, so that `gput --help` and a plain import stay fast.
    if name in __all__:
        from gput import client

        return getattr(client, name)
    raise AttributeError(f"module 'gput' has no attribute {name!r}")
