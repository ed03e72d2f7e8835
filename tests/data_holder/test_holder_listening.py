"""How often an inbox is asked that answers otherwise than it was asked to."""

from __future__ import annotations

from typing import Any, cast

import pytest

from data_holder.listening import Listening
from shared.errors import Unavailable
from shared.wire.visit import InboxItem

ITEM = InboxItem(seq=1, session="s_aaaaaaaaaaaaaaaa", kind="ended", phase="COMPLETED")
NOTHING: dict[str, Any] = {"items": [], "next": 0}
SOMETHING: dict[str, Any] = {"items": [ITEM.model_dump(mode="json")], "next": 1}


class Peer:
    """Answers at once, one after the other, and then the holder stops. It is the stopping, too, and notes each pause."""

    def __init__(self, *answers: dict[str, Any] | Exception) -> None:
        self.answers, self.pauses = list(answers), list[float]()

    async def news(self, path: str, **_: Any) -> Any:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    @property
    def is_set(self) -> bool:
        return not self.answers

    async def wait(self, seconds: float) -> bool:
        self.pauses.append(seconds)
        return self.is_set


@pytest.mark.parametrize(
    ("wait_s", "answers", "pauses"),
    [
        (20, [NOTHING] * 9, [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]),
        (20, [NOTHING, NOTHING, SOMETHING, NOTHING], [0.05, 0.1, 0.05]),
        (20, [NOTHING, Unavailable("away"), NOTHING], [0.05, 0.1, 0.2]),
        (20, [SOMETHING] * 3, []),
        (0, [NOTHING] * 3, []),  # as long as it was asked to
    ],
    ids=["at once, and for ever", "until there is something", "now and then away", "always something", "in its time"],
)
async def test_who_answers_at_once_with_nothing_is_asked_ever_more_rarely(
    wait_s: int, answers: list[Any], pauses: list[float]
) -> None:
    peer: Any = Peer(*answers)
    await Listening(cast(Any, peer), wait_s, peer).run(lambda item: None)
    assert peer.pauses == pauses
