"""CBOR from anybody: one encoding of each value, and no more work than its length pays for."""

from __future__ import annotations

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.canonical import cbor_bytes, cbor_in_any_form, cbor_value
from shared.canonical.cbor import MAX_DEPTH, MAX_ITEMS
from shared.claims.archive import PROGRAM_FORMAT, open_archive
from shared.crypto.cose import parse1
from shared.errors import BadRequest, InvalidProgram

_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 64), (1 << 64) - 1) | st.floats(allow_nan=False) | st.binary() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)  # fmt: skip


@given(_VALUES)
def test_every_value_there_and_back(value: object) -> None:
    data = cbor_bytes(value)
    assert cbor_bytes(cbor_value(data)) == data


@pytest.mark.parametrize("content", [b"", "x", 1, [1, 2], {}], ids=str)
def test_no_tag_but_coses_means_anything(content: object) -> None:
    """Whatever the library knows of it: each of its decoders does what the sender likes."""
    encoded = cbor_bytes(content)
    for tag in range(1 << 16):
        if tag == 18:
            continue
        head = cbor2.dumps(cbor2.CBORTag(tag, 0))[:-1]
        with pytest.raises(BadRequest):
            cbor_in_any_form(head + encoded)


def test_coses_is_left_to_its_reader() -> None:
    tagged = cbor_value(cbor2.dumps(cbor2.CBORTag(18, [1])))
    assert isinstance(tagged, cbor2.CBORTag)
    assert (tagged.tag, list(tagged.value)) == (18, [1])


def test_nobodys_regular_expression_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """It stands in a part of an archive, and of a signed message, that is read before anybody's signature or digest is."""
    compiled = list[str]()
    monkeypatch.setattr("re.compile", compiled.append)
    pattern = cbor2.CBORTag(35, "(?i)[\u0100-\uffff]")
    archive = cbor_bytes({"format": PROGRAM_FORMAT, "graphs": {"eval": pattern, "train": b""}, "manifest": b""})
    message = cbor2.dumps(cbor2.CBORTag(18, [b"", {}, pattern, b""]), canonical=True)
    with pytest.raises(InvalidProgram):
        open_archive(archive)
    with pytest.raises(BadRequest):
        parse1(message)
    assert compiled == []


def test_depth_has_an_end() -> None:
    assert cbor_value(b"\x81" * (MAX_DEPTH - 1) + b"\x00") is not None
    with pytest.raises(BadRequest):
        cbor_value(b"\x81" * 2 * MAX_DEPTH + b"\x00")


@pytest.mark.parametrize("item", [b"\x80", b"\x41x", b"\x38\xff", b"\xf9\x3c\x00", b"\xa0", b"\x61x"], ids=bytes.hex)
def test_the_number_of_items_has_an_end(item: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty list takes one byte there, and sixty here; and the library's time for many grows with their square."""
    monkeypatch.setattr("shared.canonical.cbor.MAX_ITEMS", 1000)
    fitting = cbor2.dumps([None] * 999)[:3] + item * 999
    assert len(cbor_in_any_form(fitting)) == 999
    one_more = cbor2.dumps([None] * 1000)[:3] + item * 1000
    with pytest.raises(BadRequest, match="1000 items"):
        cbor_in_any_form(one_more)


def test_what_is_long_in_few_items_is_read() -> None:
    value = [b"x" * 2 * MAX_ITEMS, "y" * 2 * MAX_ITEMS, {"z": bytes(MAX_ITEMS)}]
    assert cbor_value(cbor_bytes(value)) == value


REFUSED = {
    "number-as-key": cbor2.dumps({1: 2}),
    "bytes-as-key": cbor2.dumps({b"a": 2}),
    "bytes-as-key-within": cbor2.dumps({"a": [{b"a": 2}]}),
    "undefined": cbor2.dumps([cbor2.undefined]),
    "simple": cbor2.dumps({"a": cbor2.CBORSimpleValue(16)}),
    "list-as-key": cbor2.dumps({(1, 2): 3}),
    "twice-a-key": b"\xa2\x61a\x01\x61a\x02",
    "endless-list": b"\x9f\x01\xff",
    "endless-string": b"\x5f\x41a\xff",
    "longer-than-needed": b"\x18\x01",
    "more": b"\x01\x01",
    "nothing": b"",
    "cut": b"\x9b\x7f" + b"\xff" * 7,
}


@pytest.mark.parametrize("data", REFUSED.values(), ids=REFUSED)
def test_what_is_refused(data: bytes) -> None:
    """Numbers and lists as keys: their hashes can be made to collide, which makes a map of n keys cost n times n. And what another reader
    of the formats refuses: a key of bytes, a value that no format has."""
    with pytest.raises(BadRequest):
        cbor_value(data)
