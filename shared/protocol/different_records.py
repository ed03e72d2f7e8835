"""How many different records the steps of a training take up: a dataset that is smaller than what is asked of it comes several times.

By this it is decided which losses leave the GPU, on the thread that answers its commands: so it is counted in few large pieces, not step by
step, and what would take too long is not counted. Knows cursors, no dataset and no loss.

A number of different records is told so far as somebody needs it: at least `enough` where it is at least `enough`, else less than that.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from shared.claims.visit import CursorRange
from shared.protocol.record_order import records_at

AT_ONCE = 2**18
"""So many records are looked at in one piece: tens of megabytes, and NumPy's cost per call is nothing."""
LONGEST = 2**24
"""Of more records than this it is not counted which are the same: some seconds, and a command has one minute."""
AN_EPOCH = 2**8
"""To draw the order of one epoch takes no longer than to look at so many records; a small dataset has an epoch for each few of them."""

Naming = Callable[[NDArray[np.int64]], NDArray[np.int64]]
"""Of places (m,): numbers (m,), the same ones for the same records only."""


def fewest(cursor: CursorRange, n: int, batch: int, steps: int, enough: int) -> int:
    """Different records in that one of a visit's first `steps` steps, of `batch` records each, which has fewest of them.

    A shuffled range over the border of two epochs, which are shuffled independently, may name a record in each of them.
    """
    most, surely = min(batch, n), min(n, -(-batch // 2))
    if cursor.order == "sequential" or batch < 2:
        return most
    end = cursor.start + steps * batch
    borders = end // n - cursor.start // n
    if surely >= enough or borders * (batch + AN_EPOCH) > LONGEST:
        return surely
    at = n * np.arange(cursor.start // n + 1, cursor.start // n + borders + 1) - cursor.start
    over = np.unique(at[(at % batch != 0) & (at < end - cursor.start)] // batch)
    begins = cursor.start + batch * over
    whole = (begins + batch) // n > -(-begins // n)  # an epoch is in it from end to end
    if most < enough and (over.size < steps or whole.any()):
        return most
    return min(
        most, fewest_among(lambda places: records_at(cursor, n, places), begins[~whole] - cursor.start, batch, enough)
    )


def fewest_among(named: Naming, begins: NDArray[np.int64], batch: int, enough: int) -> int:
    """As `fewest`, of the steps that begin at these places; `batch` if there are none."""
    found, rows = batch, max(1, AT_ONCE // batch)
    for first in range(0, begins.size, rows):
        found = min(found, _fewest_of_some(named, begins[first : first + rows], batch, enough))
        if found < enough:
            break
    return found


def _fewest_of_some(named: Naming, begins: NDArray[np.int64], batch: int, enough: int) -> int:
    if batch > AT_ONCE:  # one step, in pieces
        return _of_a_long_step(named, int(begins[0]), batch, enough)
    places = begins[:, None] + np.arange(batch)
    rows = np.sort(named(places.ravel()).reshape(places.shape), axis=1)
    return int(np.count_nonzero(np.diff(rows, axis=1), axis=1).min()) + 1


def _of_a_long_step(named: Naming, begin: int, batch: int, enough: int) -> int:
    found = np.empty(0, np.int64)
    for first in range(begin, begin + batch, AT_ONCE):
        found = np.union1d(found, named(np.arange(first, min(first + AT_ONCE, begin + batch), dtype=np.int64)))
        if found.size >= enough:
            break
    return int(found.size)


def effort(cursor: CursorRange, n: int) -> int:
    """What it takes to look at all of a cursor's records, as so many of one long epoch. One record has one order."""
    return cursor.count + (0 if cursor.order == "sequential" or n == 1 else AN_EPOCH * times(cursor, n))


def times(cursor: CursorRange, n: int) -> int:
    """The most often that one record can be among those of `cursor`: in each epoch once, in whatever order."""
    if cursor.order == "sequential":
        return -(-cursor.count // n)
    return (cursor.start + cursor.count - 1) // n - cursor.start // n + 1
