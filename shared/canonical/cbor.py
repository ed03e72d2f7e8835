"""Deterministic CBOR (RFC 8949 4.2) out of and into plain values, whoever wrote it. Knows no meaning.

What is parsed here came from anybody, before any key was looked at. So a parser does no more than the length of what it is given pays for:
no tag means anything to it (a tag of the library's would have it compile the sender's regular expression, for minutes), keys of maps are
texts (at most byte strings, where the caller compares), whose hashes nobody can foresee, and there is an end to depth and number of items.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import cbor2

from shared.errors import BadRequest

MAX_DEPTH: Final = 64
MAX_ITEMS: Final = 1 << 18
"""Heads in one document. Each may cost a hundred times the byte that it is written in."""
COSE_SIGN1_TAG: Final = 18
"""RFC 9052 section 2: the one tag that is read, and left for its reader to understand."""
_STRINGS: Final = (2, 3)
"""Major types of byte and text strings (RFC 8949 section 3.1); `_BREAK`: of no stated length."""
_BREAK: Final = 31


def cbor_bytes(value: Any) -> bytes:
    """Deterministic CBOR of `value` (RFC 8949 section 4.2.1)."""
    return cbor2.dumps(value, canonical=True)


def cbor_value(data: bytes, *, numbered: bool = False) -> Any:
    """Parse CBOR and insist that it was deterministic and complete, so that one value has one encoding.

    Args:
        numbered: keys of maps may be numbers, as in COSE's headers: for a caller that has bounded `data`'s length.

    Raises:
        BadRequest: malformed, trailing bytes, not in deterministic form; a key that is no text; a simple value but false, true and null.
    """
    value = _loaded(data, numbered, None if numbered else _named)
    try:
        again = cbor2.dumps(value, canonical=True, encoders=_NO_OTHERS)
    except Exception as error:  # as below
        raise BadRequest(f"not CBOR: {type(error).__name__}") from error
    if again != data:
        raise BadRequest("CBOR is not in deterministic form")
    return value


def cbor_in_any_form(data: bytes, *, numbered: bool = False) -> Any:
    """Parse CBOR, deterministic or not: for a caller that knows the one form of what it expects, and compares. A tag 18 is a
    `cbor2.CBORTag`; there are no others.

    Raises:
        BadRequest: malformed, trailing bytes, or more than `MAX_ITEMS` or `MAX_DEPTH`.
    """
    return _loaded(data, numbered, None)


def _loaded(data: bytes, numbered: bool, each_map: Callable[[Any, bool], Any] | None) -> Any:
    if len(data) > MAX_ITEMS and _items(data) > MAX_ITEMS:
        raise BadRequest(f"CBOR of more than {MAX_ITEMS} items")
    try:
        return cbor2.loads(
            data, semantic_decoders=_NO_TAGS, max_depth=MAX_DEPTH, allow_indefinite=False, allow_duplicate_keys=False,
            strict_hashable_types=not numbered, object_hook=each_map,
        )  # fmt: skip
    except Exception as error:  # cbor2 raises many types on hostile input; all mean the same here
        raise BadRequest(f"not CBOR: {type(error).__name__}") from error


def cbor_byte_string(data: bytes) -> bytes:
    """`data` as a byte string in deterministic CBOR (RFC 8949 section 3.1, major type 2): what `cbor_bytes` gives, sooner."""
    size = len(data)
    if size < 24:  # the head's own five bits; then 1, 2, 4 bytes of length
        return bytes((0x40 | size,)) + data
    form, width = (0x58, 1) if size < 1 << 8 else (0x59, 2) if size < 1 << 16 else (0x5A, 4)
    return bytes((form,)) + size.to_bytes(width) + data


def _named(found: Any, _: bool) -> Any:
    """A map, if its keys are texts."""
    for name in found:
        if type(name) is not str:
            raise cbor2.CBORDecodeError("a key that is no text")
    return found


class _NoTags(Mapping[int, Callable[[Any, bool], Any]]):
    """The decoder of every tag but COSE's: one that refuses. Answers for each number, so that no release of the library adds one."""

    def __getitem__(self, tag: int) -> Callable[[Any, bool], Any]:
        if tag == COSE_SIGN1_TAG:
            raise KeyError(tag)
        return _refused

    def __iter__(self) -> Iterator[int]:
        return iter(())

    def __len__(self) -> int:
        return 1  # an empty one would be taken for none


def _refused(*_: Any) -> Any:
    raise cbor2.CBORDecodeError("a tag that means nothing here")


_NO_TAGS: Final = _NoTags()
_NO_OTHERS: Final = {type(cbor2.undefined): _refused, cbor2.CBORSimpleValue: _refused}
"""Values that the library reads and no format has: refused where what was read is written again, which costs nothing more."""


def _items(data: bytes) -> int:
    """Heads up to the end, or up to one more than is allowed; what they hold is skipped, and what is wrong with it left to the parser."""
    at = count = 0
    while at < len(data) and count <= MAX_ITEMS:
        major, info = data[at] >> 5, data[at] & 31
        width = 1 << (info - 24) if 24 <= info < 28 else 0
        length = int.from_bytes(data[at + 1 : at + 1 + width]) if width else info
        at += 1 + width + (length if major in _STRINGS and info != _BREAK else 0)
        count += 1
    return count
