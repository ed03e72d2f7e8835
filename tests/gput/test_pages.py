"""What another program answers in a service's place is no fault of ours: it is said whose address to check."""

from __future__ import annotations

from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest

from gput.api import Api
from gput.commands import operator
from shared.crypto.signing import PartyKey
from shared.errors import Unavailable

NO_PAGES = [{}, [], None, "x", {"items": None, "next": None}, {"items": [], "next": 3}]


@pytest.mark.parametrize("answer", NO_PAGES, ids=repr)
async def test_an_answer_that_is_no_page_is_unintelligible(
    answer: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    api = Api("http://127.0.0.1:9", PartyKey.generate())
    monkeypatch.setattr(api, "get", AsyncMock(return_value=answer))
    with pytest.raises(Unavailable, match="orchestrator answered") as found:
        await api.items("sessions")
    assert found.value.code == "peer-unintelligible"
    await api.close()
    monkeypatch.setattr(operator, "ask", Mock(return_value=answer))
    with pytest.raises(Unavailable, match="holder service answered"):
        operator.every("datasets", "http://127.0.0.1:9", tmp_path)
