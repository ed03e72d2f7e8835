"""What a service answers, read as what it must be: whoever else answers at an address is met with an error of the family. Knows no path."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from shared.claims.shape import first_fault
from shared.errors import Unavailable

M = TypeVar("M", bound=BaseModel)


def read_as(model: type[M], answer: Any, peer: str = "orchestrator") -> M:
    """The answer as this model. Raises: Unavailable `peer-unintelligible`: it is none."""
    try:
        return model.model_validate(answer)
    except ValidationError as error:
        raise unintelligible(f"answered with no {model.__name__}: {first_fault(error)}", peer) from None


def text_of(answer: Any, name: str, peer: str = "orchestrator") -> str:
    """The text of this name in an answer. Raises: as `read_as`."""
    found = answer.get(name) if isinstance(answer, dict) else None
    if not isinstance(found, str):
        raise unintelligible(f"answered without {name}", peer)
    return found


def unintelligible(what: str, peer: str) -> Unavailable:
    """What is said of an answer that has another shape than any of ours."""
    return Unavailable(
        f"{peer} {what}", code="peer-unintelligible",
        remedy="Check that the address is the service's own, and that its release is one that this program knows.",
    )  # fmt: skip
