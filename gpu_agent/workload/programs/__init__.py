"""Built-in training programs by name. Knows no archive."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from gpu_agent.workload.programs import classifier, gpt2
from gpu_agent.workload.source import ProgramSource
from shared.errors import BadRequest

BUILTIN: Final[dict[str, Callable[..., ProgramSource]]] = {"gpt2": gpt2.source, "classifier": classifier.source}


def builtin(name: str, **options: Any) -> ProgramSource:
    """The built-in program `name` with its options (see each program's `source`).

    Raises:
        BadRequest: unknown name or option, or an option's value is wrong.
    """
    if name not in BUILTIN:
        raise BadRequest(
            f"There is no built-in program {name!r}", remedy=f"Built in are: {', '.join(sorted(BUILTIN))}."
        )
    try:
        return BUILTIN[name](**options)
    except (TypeError, ValueError) as error:
        raise BadRequest(f"Program {name!r} does not accept these options: {error}") from error
