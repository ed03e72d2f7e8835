"""What is signed in CBOR, read field by field by the browser and by `shared.claims.exact`: both take the same for a document."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from typing import Any

import cbor2
import pytest
from pydantic import ValidationError

from shared.canonical import cbor_bytes
from shared.claims import Claim
from shared.claims.exact import claim_of
from shared.claims.receipt import DeviceStatement, Receipt, TourStatement
from shared.crypto import cose
from shared.crypto.signing import PartyKey
from shared.errors import BadRequest
from tests.protocol.signed_samples import SESSION, SIGNED, VISIT

MISSING = object()
OTHERS: list[Any] = [
    MISSING, None, True, False, 0, 1, -1, 7, 2**53 - 1, 2**53, 2**64 - 1, 0.0, 1.0, 7.0, -1.0, 1e-12, 1e-3, 1e-9, 0.5, 2.0**53, 1e6, 1e9,
    float("inf"), float("nan"), "", "closed", "rejected", "EMULATED", "HARDWARE", "direct", "city", "-city", "City", "a" * 64, "A" * 64,
    "a" * 63, "a" * 64 + "\n", "a" * 96, SESSION, VISIT, b"", b"a" * 64, bytes(16384), bytes(16385), [], ["closed"], {}, {"batches": 1},
]  # fmt: skip
"""Whole and fractional, in range and out of it, of this type and of that: for every field some that it may hold, and most it may not."""
READ = """async ([profile, all]) => {
  const { claimOf } = await import("/ui/common/claims.js");
  const { fromBase64 } = await import("/ui/common/bytes.js");
  const read = data => { claimOf(fromBase64(data), profile, "claim"); return true; };
  return all.map(data => { try { return read(data); } catch (error) { if (!error.check) throw error; return false; } });
}"""


def _with(said: dict[str, Any], place: tuple[str, ...], value: Any) -> dict[str, Any]:
    name, *within = place
    if within:
        return {**said, name: _with(said[name], tuple(within), value)}
    rest = {key: one for key, one in said.items() if key != name}
    return rest if value is MISSING else {**rest, name: value}


def _changed(whole: dict[str, Any]) -> Iterator[tuple[Any, dict[str, Any]]]:
    """The document with one of its fields otherwise, or with one more, there and in the maps within."""
    inner = [(name, within) for name in whole if isinstance(whole[name], dict) for within in (*whole[name], "another")]
    for place in [*((name,) for name in whole), ("another",), ("constructor",), *inner]:
        for value in OTHERS:
            yield (place, value), _with(whole, place, value)


def _read(kind: type[Claim], data: bytes) -> bool:
    try:
        claim_of(kind, data)
    except (ValidationError, BadRequest):
        return False
    return True


@pytest.mark.parametrize("kind", [Receipt, DeviceStatement, TourStatement])
def test_every_field_is_read_at_its_word_by_both(page: Any, kind: type[Claim]) -> None:
    whole = SIGNED[kind]
    assert set(kind.model_fields) == set(whole)
    cases = [("as it is", whole), *_changed(whole)]
    written = [cbor_bytes(said) for _, said in cases]
    here = page.evaluate(READ, [whole["profile"], [b64encode(data).decode() for data in written]])
    both = [
        (case, in_browser, _read(kind, data)) for (case, _), data, in_browser in zip(cases, written, here, strict=True)
    ]
    assert both[0] == ("as it is", True, True)
    assert [one for one in both if one[1] != one[2]] == []


@pytest.mark.parametrize(("alg", "key"), [("-8", 1), (-8.0, 1), (-8, 1.0), (-8, True), (-8, "1")])
def test_an_algorithm_is_named_by_a_whole_number(page: Any, alg: Any, key: Any) -> None:
    """And stands under one: what is equal to it is not the same."""
    signer = PartyKey.generate()

    def message(header: dict[Any, Any]) -> bytes:
        protected = cbor2.dumps(header, canonical=True)
        signature = signer.sign_cose(cose._sig_structure(protected, b"", b"stated"))
        return cbor2.dumps(cbor2.CBORTag(18, [protected, {}, b"stated", signature]), canonical=True)

    messages = [message({1: -8, 4: b"k"}), message({key: alg, 4: b"k"})]
    here = page.evaluate(
        """async messages => {
          const { parse } = await import("/ui/common/cose.js");
          const { fromHex } = await import("/ui/common/bytes.js");
          return messages.map(hex => { try { return parse(fromHex(hex)).alg; } catch (error) { return error.check; } });
        }""",
        [one.hex() for one in messages],
    )
    assert here == [-8, "COSE form"] or (here == [-8, "canonical CBOR"] and type(key) is not int)
    assert cose.verify1(messages[0], signer.public) == b"stated"
    with pytest.raises(BadRequest):
        cose.verify1(messages[1], signer.public)
