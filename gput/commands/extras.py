"""Optional parts of the installation that single commands need, and what to say where one is missing. Knows no command."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from shared.errors import Unavailable, installing


@contextmanager
def pytorch() -> Iterator[None]:
    """Around the imports of the few commands that need PyTorch. Raises: Unavailable: it is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise Unavailable(
            f"This command needs PyTorch, which is not installed ({error.name})",
            remedy=f"Install the extra: {installing('gpu')}.",
        ) from error
