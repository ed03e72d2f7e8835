"""The log as whoever answers for the orchestrator lists it: no list goes on for ever, and no leaf lies outside the tree."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from pydantic import ValidationError

from data_holder.log_reader import LogReader
from data_holder.protocol.state import SessionState
from shared.crypto.tree_head import TreeHead
from shared.errors import VerificationFailed
from shared.wire.visit import Inbox, InboxItem
from tests.data_holder.holder_world import NAME, SESSION

SIZE, EACH = 1000, 200
RECEIPT = base64.b64encode(b"\xd2x").decode()


class Link:
    """A list whose n-th page (from 0 on) has leaves of these indexes, and which has always one page more, up to `most`."""

    def __init__(self, indexes: Any, most: int = 100) -> None:
        self._indexes, self._most, self.asked = indexes, most, 0

    async def get_json(self, path: str, params: dict[str, Any]) -> Any:
        page, self.asked = self.asked, self.asked + 1
        assert page < self._most, "it is read for ever"
        items = [{"index": index, "leaf": RECEIPT, "path": []} for index in self._indexes(page)]
        return {"items": items, "next": str(page)}


async def events(log: LogReader) -> None:
    async for _ in log.events(SIZE, bytes(32)):
        pytest.fail("a receipt is no event")


async def read(reader: str, link: Any) -> VerificationFailed:
    log = LogReader(link, SessionState(SESSION))
    reading = events(log) if reader == "events" else log.paths(TreeHead(SESSION, SIZE, bytes(32), 0), NAME)
    with pytest.raises(VerificationFailed) as caught:
        await reading
    assert caught.value.code == "bad-inclusion-proof"
    return caught.value


readers = pytest.mark.parametrize("reader", ["paths", "events"])


@readers
async def test_a_list_that_rises_for_ever_ends_with_the_tree(reader: str) -> None:
    """A receipt's leaf is proven by nobody here, so its index had only to rise; and every path was kept."""
    link = Link(lambda page: range(EACH * page, EACH * (page + 1)))
    assert "not within" in (await read(reader, link)).detail
    assert link.asked == SIZE // EACH + 1


@readers
@pytest.mark.parametrize("index", [-1, SIZE, 2**64, True, 1.0, "1", None])
async def test_what_is_no_leaf_of_the_tree_is_refused(reader: str, index: Any) -> None:
    link = Link(lambda page: [0, index])
    await read(reader, link)
    assert link.asked == 1


@readers
@pytest.mark.parametrize("indexes", [[5, 5], [5, 4], []])
async def test_a_list_that_does_not_rise_is_refused(reader: str, indexes: list[int]) -> None:
    link = Link(lambda page: indexes)
    await read(reader, link)
    assert link.asked == 1


@pytest.mark.parametrize("index", [-1, 2**53, 2**64])
def test_an_inbox_names_no_leaf_that_cannot_be(index: int) -> None:
    """It was a fault in this program, of the database's numbers, tried each second without end."""
    sound = {"seq": 1, "kind": "receipt", "session": SESSION, "receipt": RECEIPT}
    assert InboxItem.model_validate(sound | {"receipt_index": 2**53 - 1}).receipt_index == 2**53 - 1
    with pytest.raises(ValidationError, match="receipt_index"):
        InboxItem.model_validate(sound | {"receipt_index": index})


@pytest.mark.parametrize("place", [-1, 2**53 + 1, 2**64])
def test_an_inbox_has_no_place_that_cannot_be_asked_for(place: int) -> None:
    item = {"seq": 2**53, "kind": "ended", "session": SESSION}
    assert Inbox.model_validate({"items": [item], "next": 2**53}).next == 2**53
    for wrong in ({"items": [item], "next": place}, {"items": [item | {"seq": place}], "next": 1}):
        with pytest.raises(ValidationError, match=r"(less|greater) than or equal"):
            Inbox.model_validate(wrong)
