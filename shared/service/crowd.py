"""The connections of one server by what they are at, and which of them goes when there are too many. Knows no protocol."""

from __future__ import annotations

import resource
from collections import Counter, OrderedDict
from collections.abc import Callable
from itertools import chain
from operator import itemgetter
from typing import Generic, Protocol, TypeVar


class _Connection(Protocol):
    @property
    def address(self) -> str:
        """Whose it is, as far as that can be told."""


Unparsed = Callable[[str, int], None]
"""Told the address and the status of what the protocol itself answered."""
C = TypeVar("C", bound=_Connection)


class Crowd(Generic[C]):
    """`waiting`: those that have no request under way, `sending`: those whose request's body is not there yet, `answering`: those whose
    request is all there, each the longest first; `limit`: how many there may be."""

    def __init__(self, most: int, unparsed: Unparsed | None = None) -> None:
        """At most so many, and no more than leave descriptors for everything else. `unparsed` is told of what never became a request."""
        self.unparsed = unparsed or (lambda _address, _status: None)
        descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.limit = most if descriptors == resource.RLIM_INFINITY else min(most, max(16, descriptors // 2))
        self.waiting: OrderedDict[C, None] = OrderedDict()
        self.sending: OrderedDict[C, None] = OrderedDict()
        self.answering: OrderedDict[C, None] = OrderedDict()

    def leaves(self, one: C) -> None:
        """It has ended."""
        self.waiting.pop(one, None)
        self.sending.pop(one, None)
        self.answering.pop(one, None)

    def one_too_many(self, newcomer: C) -> C:
        """Who has to go: who only waits, or else who has been at a body longest; where all others are being answered, one of whose address
        has most of them, and the newcomer where that is its own. It is none of the crowd from here on: the next one may be asked for before
        it has ended."""
        others = (one for one in chain(self.waiting, self.sending) if one is not newcomer)
        chosen = next(others, None) or self._of_the_greediest(newcomer)
        self.leaves(chosen)
        return chosen

    def _of_the_greediest(self, newcomer: C) -> C:
        """The oldest of the address that has most, if it has more than the newcomer's: parties behind one proxy cut nobody off."""
        each = Counter(one.address for one in self.answering)
        address, most = max(each.items(), key=itemgetter(1), default=("", 0))
        if most <= each[newcomer.address] + 1:
            return newcomer
        return next(one for one in self.answering if one.address == address)
