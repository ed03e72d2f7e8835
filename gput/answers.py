"""What a service answers, read as what it must be: whoever else answers at an address is met with an error of the family. Knows no path."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NoReturn, TypeVar

from pydantic import BaseModel, ValidationError

from shared.claims.shape import first_fault
from shared.errors import ConfigurationError, NotFound, Unavailable

M = TypeVar("M", bound=BaseModel)


def read_as(model: type[M], answer: Any, peer: str = "orchestrator") -> M:
    """The answer as this model. Raises: Unavailable `peer-unintelligible`: it is none."""
    try:
        return model.model_validate(answer)
    except ValidationError as error:
        raise unintelligible(f"answered with no {model.__name__}: {first_fault(error)}", peer) from None


class Told(dict[str, Any]):
    """An object in a peer's answer. What somebody reads of it and it lacks is the peer's fault, so that `told["phase"]` raises as `read_as`
    does, and no KeyError, which would be ours."""

    def __init__(self, fields: Mapping[str, Any], peer: str) -> None:
        super().__init__(fields)
        self._peer = peer

    def __missing__(self, name: str) -> NoReturn:
        raise unintelligible(f"answered without {name}", self._peer)


def object_of(answer: Any, *names: str, peer: str = "orchestrator") -> Told:
    """The answer, which must be an object and have these fields; objects in it are `Told`, too. Raises: as `read_as`."""
    try:
        found = _told(answer, peer)
    except RecursionError:
        raise unintelligible("answered with objects within objects without end", peer) from None
    if not isinstance(found, Told):
        raise unintelligible("answered with something else than an object", peer)
    for name in names:
        _ = found[name]
    return found


def _told(value: Any, peer: str) -> Any:
    if isinstance(value, dict):
        return Told({name: _told(inner, peer) for name, inner in value.items()}, peer)
    return [_told(inner, peer) for inner in value] if isinstance(value, list) else value


def text_of(answer: Any, name: str, peer: str = "orchestrator") -> str:
    """The text of this name in an answer. Raises: as `read_as`."""
    found = answer.get(name) if isinstance(answer, dict) else None
    if not isinstance(found, str):
        raise unintelligible(f"answered without {name}", peer)
    return found


@contextmanager
def only_asked(peer: str) -> Iterator[None]:
    """Around a dry run. Raises: ConfigurationError `no-dry-run`: the service has no such path, so it was not asked."""
    try:
        yield
    except NotFound as error:
        if error.code == NotFound.default_code:  # what is missing at a path that there is has a code of its own
            raise no_dry_run(peer) from None
        raise


def no_dry_run(peer: str) -> ConfigurationError:
    """What is said of a service of before there were dry runs."""
    return ConfigurationError(
        f"{peer} is of a release that says nothing beforehand, so nobody knows what it would answer; nothing was done",
        code="no-dry-run", remedy=f"Have {peer} updated. Without --dry-run the same command acts.",
    )  # fmt: skip


def unintelligible(what: str, peer: str) -> Unavailable:
    """What is said of an answer that has another shape than any of ours."""
    return Unavailable(
        f"{peer} {what}", code="peer-unintelligible",
        remedy="Check that the address is the service's own, and that its release is one that this program knows.",
    )  # fmt: skip
