"""The fixtures that several files of this folder take."""

from __future__ import annotations

from tests.platform.platform_world import world

__all__ = ["world"]
