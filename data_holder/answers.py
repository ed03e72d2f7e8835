"""What the orchestrator answers, read as what it must be: anything else is refused by name, as its fault and not this program's.

Knows no channel, receipt or share: who asks names the code.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError

from data_holder.links import OrchestratorLink
from shared.claims.shape import first_fault
from shared.errors import VerificationFailed

PAGE: Final = 200
MOST_LEAVES: Final = 2**53
Model = TypeVar("Model", bound=BaseModel)


def parsed(model: type[Model], answer: object, code: str) -> Model:
    """The answer as this model. Raises: VerificationFailed, by `code`: it is none."""
    try:
        return model.model_validate(answer)
    except ValidationError as error:
        raise malformed(f"no {model.__name__}: {first_fault(error)}", code) from None


async def listed(
    link: OrchestratorLink, path: str, code: str, max_pages: int, **asked: Any
) -> AsyncIterator[dict[str, Any]]:
    """Every item of a list, page by page.

    Raises:
        VerificationFailed, by `code`: a page is none, or the list goes on after so many. Unavailable: no answer of the orchestrator.
    """
    params: dict[str, Any] = {"limit": PAGE, **asked}
    for _ in range(max_pages):
        page = await link.get_json(path, params=params)
        items, after = _page(page, code)
        for item in items:
            yield item
        if not after:
            return
        params["after"] = after
    raise malformed(f"a list that has no end, at {path}", code)


def leaf_index(said: object) -> int:
    """Which leaf of a log it is said to be, from 0 on and below 2^53. Raises: ValueError: that is no number of a leaf."""
    if type(said) is not int or not 0 <= said < MOST_LEAVES:  # true is no number here, although it is one to Python
        raise ValueError("no number of a leaf")
    return said


def malformed(what: str, code: str) -> VerificationFailed:
    """The error of an answer that is not of the agreed form, but `what`."""
    return VerificationFailed(f"the orchestrator's answer is {what}", code=code)


def _page(page: object, code: str) -> tuple[list[dict[str, Any]], str | None]:
    if not isinstance(page, dict) or not isinstance(page.get("items"), list):
        raise malformed("no page of a list", code)
    items, after = page["items"], page.get("next")
    if not all(isinstance(item, dict) for item in items) or not isinstance(after, str | None):
        raise malformed("no page of a list", code)
    return items, after
