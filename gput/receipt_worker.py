"""A process that checks leaves for the one that verifies a folder: asked on its standard input, answering on its standard output.

Knows no folder. It has no word of its own about what is wrong: it tells how many of the lines hold, and whoever asked finds out why the
next does not. It ends when its input does, and so never outlives whoever started it.

Usage: python -m gput.receipt_worker, with frames of deterministic CBOR: first what is known, then [number of the first line, lines].
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from contextlib import suppress
from typing import IO

from gput.receipt_known import Known
from gput.receipt_leaves import HeldLeaf, HeldReceipt, check_leaf
from shared.canonical import cbor_bytes, cbor_value

_LENGTH = struct.Struct(">Q")


def write_frame(stream: IO[bytes], data: bytes) -> None:
    """`data` behind its length in 8 bytes. Raises: OSError: nobody reads any more."""
    stream.write(_LENGTH.pack(len(data)) + data)
    stream.flush()


def read_frame(stream: IO[bytes]) -> bytes | None:
    """The next frame; None at the end, also in the middle of one."""
    length = stream.read(_LENGTH.size)
    if len(length) < _LENGTH.size:
        return None
    (size,) = _LENGTH.unpack(length)
    data = stream.read(size)
    return data if len(data) == size else None


def holding(known: Known, first: int, lines: Sequence[bytes]) -> list[HeldLeaf]:
    """What is kept of `lines`, leaf `first` and those behind it, up to the first that does not hold."""
    found: list[HeldLeaf] = []
    # Whatever is wrong is found out again, and told, by whoever asked.
    with suppress(Exception):
        for index, line in enumerate(lines, first):
            found.append(check_leaf(known, index, line))  # what holds before one that does not is kept
    return found


def answered(data: bytes) -> list[HeldLeaf]:
    """A worker's answer."""
    return [
        HeldLeaf(hashed, says if isinstance(says, bytes) else HeldReceipt(*says)) for hashed, says in cbor_value(data)
    ]


def serve(asked: IO[bytes], answers: IO[bytes]) -> None:
    """Answer until nothing more is asked. Raises: OSError: nobody listens any more."""
    packed = read_frame(asked)
    if packed is None:
        return
    known = Known.from_bytes(packed)
    while (data := read_frame(asked)) is not None:
        first, lines = cbor_value(data)
        write_frame(answers, cbor_bytes(holding(known, first, lines)))


if __name__ == "__main__":
    # Files of our own: what sys.stdout could not flush at the end, it would complain of.
    with suppress(BrokenPipeError), open(0, "rb", closefd=False) as asked, open(1, "wb", closefd=False) as answers:
        serve(asked, answers)
