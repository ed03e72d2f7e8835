"""The fixtures that several files of this folder take."""

from __future__ import annotations

from tests.orchestrator.lease_world import engine, store
from tests.orchestrator.orchestrator_world import installation, two_owners, world

__all__ = ["engine", "installation", "store", "two_owners", "world"]
