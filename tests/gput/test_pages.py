"""What another program answers in a service's place is no fault of ours: it is said whose address to check."""

from __future__ import annotations

from typing import Any
from unittest.mock import AsyncMock

import pytest

from gput.pages import pages
from shared.errors import Unavailable

NO_PAGES = [{}, [], None, "x", {"items": None, "next": None}, {"items": [], "next": 3}, {"items": [7]}]


@pytest.mark.parametrize("answer", NO_PAGES, ids=repr)
async def test_an_answer_that_is_no_page_is_unintelligible(answer: Any) -> None:
    with pytest.raises(Unavailable, match="peer answered") as found:
        await pages(AsyncMock(return_value=answer), "peer")
    assert found.value.code == "peer-unintelligible"
