"""How many workers wait on a device: how many to make beside a launch, what each may take to warm up, what they hold. Arithmetic on bytes
and seconds; knows no process and no device.

To make one takes 0.4 s on a card, and what is being made must have what it will hold before the memory of the one that trained is anybody's
to take. So a launch of 0.04 s waited for nearly all of that, each time. Four at once are made in hardly more time than one, each on a core
of its own: where launches are that short, one in four waits and the others find their worker there.
"""

from __future__ import annotations

from typing import Final

MOST: Final = 4
_SPARED: Final = 2
"""Of what a training took before; PyTorch keeps more than its tensors take (1.3 times, for GPT-2 124M), and who warms up has a model of its
own there as well."""


class Waiting:
    """Workers that wait with a context of the device's memory, all of one program and of one kind: warmed up for the same launches, with a
    whole batch or without.

    Launches are alike, and so is what they take, if they have the same `like`.
    """

    def __init__(self) -> None:
        self._count = 0
        self._kind = self._known = "", False  # of those that wait; of those of which it is known what each holds
        self._each: int | None = None
        self._alone: int | None = None
        self._taken: dict[str, int] = {}
        self._short = set[str]()
        self._making = ""  # like which launch's the ones are that are being made; "": none is

    def alone(self, free: int) -> None:
        """What the device has free with no worker at all, the first time that somebody looks."""
        if self._alone is None:
            self._alone = free

    def are(self, count: int) -> bool:
        """So many wait, and nothing else is there; whether it is known what they hold, or none does."""
        self._count = count
        if not count:
            self.forget()
        return not count or (self._each is not None and self._known == self._kind)

    def learn(self, free: int) -> None:
        """What is free beside all that wait."""
        if self._alone is not None and self._count:
            self._each, self._known = max(0, self._alone - free) // self._count, self._kind

    def forget(self) -> None:
        """None waits."""
        self._count, self._each, self._kind, self._making = 0, None, ("", False), ""

    def free(self) -> int | None:
        """What is free beside those that wait: that much a sweep has to cover. None: no worker may be there, or that is not known."""
        if self._alone is None or self._each is None:
            return None
        return self._alone - self._count * self._each

    def took(self, like: str, taken: int) -> None:
        """Bytes that a launch had at once beside HBM."""
        self._taken[like] = max(taken, self._taken.get(like, 0))

    def beside(self, like: str) -> tuple[int, int]:
        """How many are to wait when a launch ends that takes one of them, and what each that is made for that may take to warm up.

        So that each can do so with a whole batch while the launch has all that it wants: where a worker cannot, the first step of its
        launch loads the kernels for that (0.3 s for GPT-2 124M). Several only where it is known what each of their kind holds: a
        sweep counts on it.

        Returns:
            Number, 0 where it is not known what those that wait hold; bytes, 0 where nothing is known of launches like this one.
        """
        if self._alone is None or self._each is None or not self._count:
            return 0, 0
        if self._count > 1:
            return self._count - 1, 0
        number, room = self._room(like, self._alone, self._each)
        self._kind, self._making = (like, room > 0), like
        return number, room

    def _room(self, like: str, alone: int, each: int) -> tuple[int, int]:
        taken = self._taken.get(like)
        if taken is None:
            return 1, 0
        if like in self._short and self._known == (like, True):
            for number in range(MOST, 1, -1):
                room = (alone - number * each - _SPARED * taken) // number
                if room > _SPARED * taken:
                    return number, room
        return 1, max(0, alone - each - _SPARED * taken)

    def ended(self, count: int, ran_s: float, waited_s: float | None) -> None:
        """A launch was over after so many seconds and destroyed, and so many wait.

        Args:
            waited_s: until each that was made beside it had what it will hold; None: they were not waited for.
        """
        self._count = count
        if self._making and waited_s is not None:
            (self._short.add if waited_s > ran_s else self._short.discard)(self._making)
        self._making = ""
