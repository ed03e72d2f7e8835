"""Verification in the browser: what holds there holds for `gput receipts verify`, and a flipped bit is found and named."""

from __future__ import annotations

import base64
import json
import os
import random
from typing import Any

import cbor2

from shared.canonical import cbor_value, sha256
from shared.canonical.cbor import MAX_DEPTH, MAX_ITEMS
from shared.crypto import ecc
from shared.crypto.cose import p384_point, sign1
from shared.crypto.signing import PartyKey
from shared.errors import BadRequest
from shared.protocol.merkle import inclusion_proof, leaf_hash, root
from tests.ui.conftest import NewTab
from tests.ui.stage import UiStage

BUNDLE = """async session => {
  const { all, get } = await import("/ui/common/api.js");
  const path = `/v1/sessions/${session}`;
  const head = await get(`${path}/log/head`);
  return { session, head, leaves: await all(`${path}/log/leaves?size=${head.size}`), keys: await all(`${path}/keys`),
    manifest: await get(`${path}/manifest`), approvals: await all(`${path}/approvals`) };
}"""
CHECK = """async bundle => {
  const { checkLog } = await import("/ui/common/receipts_check.js");
  const { whole, results } = await checkLog(bundle, bundle.session);
  return [...whole.filter(one => !one.ok).map(one => `${one.name}: ${one.detail}`),
    ...results.filter(one => !one.ok).map(one => `leaf ${one.index}: ${one.check}: ${one.detail}`)];
}"""


def flipped(text: str, draw: random.Random) -> str:
    """Base64 of the bytes with one bit flipped."""
    data = bytearray(base64.b64decode(text))
    data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    return base64.b64encode(bytes(data)).decode()


def test_real_receipts_hold_and_every_flipped_bit_is_named(page: Any, stage: UiStage) -> None:
    bundle = page.evaluate(BUNDLE, stage.sessions["done"])
    assert (len(bundle["leaves"]), page.evaluate(CHECK, bundle)) == (6, [])
    draw = random.Random(7)
    for _ in range(60):
        index = draw.randrange(6)
        leaves = [dict(leaf) for leaf in bundle["leaves"]]
        leaves[index]["leaf"] = flipped(leaves[index]["leaf"], draw)
        found = page.evaluate(CHECK, {**bundle, "leaves": leaves})
        assert found[0].startswith(f"leaf {index}: ") or found[1].startswith(f"leaf {index}: "), found
        assert not [line for line in found if line.startswith("leaf ") and not line.startswith(f"leaf {index}: ")]


def test_a_flipped_bit_anywhere_else_is_found(page: Any, stage: UiStage) -> None:
    bundle, draw = page.evaluate(BUNDLE, stage.sessions["done"]), random.Random(8)

    def spoilt(*way: str | int) -> Any:
        copy = json.loads(json.dumps(bundle))
        at: Any = copy
        for step in way[:-1]:
            at = at[step]
        value = at[way[-1]]
        digits = "0123456789abcdef"
        at[way[-1]] = (
            digits[digits.index(value[0]) ^ 1] + value[1:] if set(value) <= set(digits) else flipped(value, draw)
        )
        return copy

    for way in [
        ("head", "root"), ("head", "signature"), ("head", "key"), ("leaves", 3, "path", 0), ("keys", 0, "runtime_data"),
        ("keys", 0, "signing_key"), ("keys", 1, "gpu_evidence", "challenge"), ("keys", 2, "gpu_evidence", "statement_key"),
        ("manifest", "document"),
        ("approvals", 0, "document"), ("approvals", 1, "signature"), ("approvals", 2, "public_key"),
    ]:  # fmt: skip
        assert page.evaluate(CHECK, spoilt(*way)), way
    assert page.evaluate(CHECK, {**bundle, "leaves": bundle["leaves"][:-1]})
    assert page.evaluate(CHECK, {**bundle, "leaves": bundle["leaves"][::-1]})


def test_a_key_is_held_against_the_session_and_its_manifest(page: Any, stage: UiStage) -> None:
    bundle = page.evaluate(BUNDLE, stage.sessions["done"])
    whole, first = bundle["keys"][0], json.loads(base64.b64decode(bundle["keys"][0]["runtime_data"]))
    for name, other in (("role", "holder"), ("session", "s_aaaaaaaaaaaaaaaa"), ("manifest", "0" * 64)):
        runtime = base64.b64encode(json.dumps(first | {name: other}).encode()).decode()
        found = page.evaluate(CHECK, {**bundle, "keys": [{**whole, "runtime_data": runtime}, *bundle["keys"][1:]]})
        assert "key 0: of another " + ("manifest" if name == "manifest" else "session or role") in found[0]


def test_the_page_names_the_leaf_that_was_altered(tab: NewTab, stage: UiStage) -> None:
    one = tab()

    def answer(route: Any) -> None:
        reply = route.fetch()
        body = reply.json()
        body["items"][4]["leaf"] = flipped(body["items"][4]["leaf"], random.Random(9))
        route.fulfill(response=reply, json=body)

    one.page.route("**/log/leaves*", answer)
    page = one.open(f"#/sessions/{stage.sessions['done']}/receipts")
    page.locator("#verdict.problem").wait_for()
    assert "Does not hold: leaf 4: " in page.locator("#verdict").inner_text().replace("\n", " ")
    one.shot("dashboard-receipts-altered")


END = """async ([rules, cases]) => {
  const { checkEnd } = await import("/ui/common/visit_end.js");
  const mapped = said => new Map(Object.entries(said).map(([name, one]) => [name, Object(one) === one ? mapped(one) : one]));
  return cases.map(([receipt, statement]) => {
    try { checkEnd(mapped(receipt), mapped(statement), rules); return ""; } catch (error) { return error.check; }
  });
}"""
KEPT: dict[str, Any] = {"model_after": "m", "outcome": "rejected"}


def test_a_visits_end_is_held_against_the_manifest(page: Any) -> None:
    rules = {
        "roster": [{"holder": "city", "steps_per_visit": None}], "steps_per_visit": 3, "training": {"batch_size": 4}, "buffer_bytes": 64,
    }  # fmt: skip
    right = {
        "outcome": "closed",
        "model_before": "m",
        "model_after": "n",
        "steps": 3,
        "records": 12,
        "scrubbed_bytes": 64,
    }
    cases: list[tuple[dict[str, Any], str]] = [
        ({}, ""), (KEPT, ""), (KEPT | {"steps": 0}, ""), ({"mixed": {"records": 24}, "steps": 6}, ""),
        (KEPT | {"accumulated": {"before": "a", "after": "a"}}, ""), ({"scrubbed_bytes": 63}, "scrub"),
        ({"records": 13}, "records"), ({"steps": 2}, "steps"),
        ({"mixed": {"records": 24}}, "steps"), (KEPT | {"steps": 4}, "steps"), ({"outcome": "rejected"}, "rejected"),
        (KEPT | {"accumulated": {"before": "a", "after": "b"}}, "rejected"),
    ]  # fmt: skip
    said = [{**right, **changes} for changes, _ in cases]
    asked = [[{"holder": "city", "outcome": one["outcome"]}, one] for one in said]
    assert page.evaluate(END, [rules, asked]) == [named for _, named in cases]


CHAIN = """async cases => {
  const { checkChain } = await import("/ui/common/receipts_chain.js");
  const mapped = said => new Map(Object.entries(said).map(([name, one]) => [name, Object(one) === one ? mapped(one) : one]));
  const leaf = (said, index) => typeof said[0] === "string" ? { index, event: ["gput/log-event/1", "s", said[0], mapped(said[1])] }
    : { index, receipt: mapped({ index: index + 1, ...said[0] }), statement: mapped(said[1]) };
  const rules = { predecessor: null, validation: { release: "best" } };
  return cases.map(leaves => { try { checkChain(leaves.map(leaf), rules); return ""; } catch (error) { return error.message; } });
}"""


def trained(before: str, after: str, first: int | None = None, number: int = 1) -> list[Any]:
    """A visit of one step, as receipt and statement; models are as many steps old as their letter says.

    `first`: its place in a mixture of that round.
    """
    mixed = {} if first is None else {"mixed": {"round": number, "seed": 7, "visits": 2, "records": 8, "first": first}}
    outcome = "rejected" if before == after else "closed"
    step = {"first_step": "abcde".index(before), "steps": 1}
    return [{"outcome": outcome}, {"model_before": before, "model_after": after, **step, **mixed}]


def test_an_update_that_vanishes_from_the_chain_unsaid_is_named(page: Any) -> None:
    two, back = [trained("a", "b"), trained("b", "c")], trained("b", "d")
    restored = ["restored", {"position": 1}]
    tour, undone = [trained("a", "b", 0), trained("a", "b", 4)], [trained("a", "c", 0), trained("a", "c", 4)]
    unsaid = "starts from an earlier model, and no leaf tells of a restore to it"
    cases: list[tuple[list[Any], str]] = [
        ([*two, trained("c", "c"), trained("c", "d")], ""), ([*two, back], f"leaf 2 {unsaid}"),
        ([*two, ["recalled", {}], back], f"leaf 3 {unsaid}"), ([*two, restored, back], ""),
        ([*two, restored, back, back], f"leaf 4 {unsaid}"), ([*two, ["restored", {"position": 2}], back], f"leaf 3 {unsaid}"),
        ([*two, ["restored", {"position": 0}], trained("a", "d")], ""), ([*two, ["best_chosen", {"model": "b"}], back], ""),
        ([*two, ["best_chosen", {"model": "a"}], back], f"leaf 3 {unsaid}"),
        ([*two, ["best_chosen", {"model": "e"}]], "leaf 2 chooses a model that no earlier receipt left"),
        ([*two, trained("e", "d")], "leaf 2 starts from a model that no earlier receipt left"),
        ([*tour, trained("b", "c", 0, 2), trained("b", "c", 4, 2)], ""), ([*tour, *undone], f"leaf 2 {unsaid}"),
    ]  # fmt: skip
    assert page.evaluate(CHAIN, [leaves for leaves, _ in cases]) == [said for _, said in cases]


def test_anybody_may_flip_a_bit_and_see_it_found(tab: NewTab, stage: UiStage) -> None:
    page = tab().open(f"#/sessions/{stage.sessions['done']}/receipts")
    page.get_by_text("All hold: 6 leaves, 6 receipts among them").wait_for()
    for _ in range(8):
        page.get_by_role("button", name="Flip one bit of a copy").click()
        page.locator("#flipped", has_text="found").wait_for()
        assert "NOT FOUND" not in page.locator("#flipped").inner_text()


# ------------------------------------------------------------------- formats


LOOSE = """1800 190017 1a00000100 1b0000000000000001 5800 780161 9f00ff 5f4100ff fb3ff8000000000000 fa3fc00000 f97e01
a2616201616101 a2616101616102 a20001000118 0000 18 61ff f8ff f7 f0 81f7 81f820 c074
d8236161 c24101 a10102 a18001 a1416101"""
"""Too long, without an end, out of order, twice, cut off, not UTF-8, tagged, by keys that are no texts, or nothing that a receipt has."""


def some_value(draw: random.Random, depth: int = 0) -> Any:
    """A value of the kinds that receipts hold."""
    kinds: list[Any] = [
        lambda: draw.choice(
            [0, 1, 23, 24, 255, 256, 65535, 65536, 2**32 - 1, 2**32, 2**53 - 1, -1, -24, -25, -(2**40)]
        ),
        lambda: "".join(draw.choice("aé€😀z") for _ in range(draw.randrange(30))),
        lambda: draw.randbytes(draw.choice([0, 1, 23, 24, 300])),
        lambda: draw.choice(
            [True, False, None, 0.0, -0.0, 1.5, 65504.0, 65505.0, 1e-7, 5.960464477539063e-08, 0.1, 1e300, float("inf")]
        ),
    ]
    if depth < 3:
        kinds += [
            lambda: [some_value(draw, depth + 1) for _ in range(draw.randrange(5))],
            lambda: {
                draw.choice(["a", "bb", "receipt", "z" * 30, "", "é"]): some_value(draw, depth + 1)
                for _ in range(draw.randrange(5))
            },
        ]
    return draw.choice(kinds)()


def at_the_edges() -> list[bytes]:
    """Around the most levels and the most items that are read."""
    deep = [outer * n + inner for n in range(MAX_DEPTH - 1, MAX_DEPTH + 2) for outer in (b"\x81", b"\xa1\x61a")
            for inner in (b"\x00", b"\x80", b"\xa0", b"\xd2\x00")]  # fmt: skip
    return deep + [b"\x9a" + n.to_bytes(4) + bytes(n) for n in (MAX_ITEMS - 1, MAX_ITEMS)]


def strict(data: bytes) -> bool:
    try:
        cbor_value(data)
    except BadRequest:
        return False
    return True


def test_cbor_has_one_form_only_as_the_services_see_it(page: Any) -> None:
    draw = random.Random(10)
    canonical = [cbor2.dumps(some_value(draw), canonical=True) for _ in range(250)]
    loose = [bytes.fromhex(text) for text in LOOSE.split()]
    edges = at_the_edges()
    for data in canonical[:120]:
        spoilt = bytearray(data)
        spoilt[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        loose.append(bytes(spoilt))
    taken = page.evaluate(
        """async all => {
          const { decode } = await import("/ui/common/cbor.js");
          const { fromHex } = await import("/ui/common/bytes.js");
          const taken = hex => { decode(fromHex(hex)); return true; };
          return all.map(hex => { try { return taken(hex); } catch (error) { if (!error.check) throw error; return false; } });
        }""",
        [data.hex() for data in (*canonical, *loose, *edges)],
    )
    assert all(taken[:250])
    both = [(data.hex()[:200], here, strict(data)) for data, here in zip((*loose, *edges), taken[250:], strict=True)]
    assert [one for one in both if one[1] != one[2]] == []
    assert not any(taken[250 : 250 + len(LOOSE.split())])
    assert {here for _, here, _ in both[len(loose) :]} == {True, False}


def test_inclusion_proofs_are_judged_alike(page: Any) -> None:
    leaves = [leaf_hash(bytes([n])) for n in range(21)]
    cases = []
    for size in range(1, 22):
        for index in range(size):
            path = inclusion_proof(index, leaves[:size])
            cases.append([leaves[index].hex(), index, size, [node.hex() for node in path], root(leaves[:size]).hex()])
    wrong = [[leaf, (index + 1) % size, size, path, top] for leaf, index, size, path, top in cases if size > 1]
    wrong += [[leaf, index, size, [*path, top], top] for leaf, index, size, path, top in cases]
    wrong += [[sha256(leaf.encode()).hex(), index, size, path, top] for leaf, index, size, path, top in cases]
    held = page.evaluate(
        """async all => {
          const { checkInclusion } = await import("/ui/common/merkle.js");
          const { fromHex } = await import("/ui/common/bytes.js");
          return Promise.all(all.map(([leaf, index, size, path, top]) =>
            checkInclusion(fromHex(leaf), index, size, path.map(fromHex), fromHex(top))
              .then(() => true, error => error.check ? false : null)));
        }""",
        [*cases, *wrong],
    )
    assert held == [True] * len(cases) + [False] * len(wrong)


def test_a_device_of_either_release_is_verified_and_by_its_own_key_only(page: Any) -> None:
    newer, older = PartyKey.generate(), ecc.private_key(os.urandom)
    keys = [newer.public, p384_point(older.public_key())]
    messages = [sign1(b"stated", key, kid=b"k") for key in (newer, older)]
    held = page.evaluate(
        """async ([keys, messages]) => {
          const { parse, publicKey, verified } = await import("/ui/common/cose.js");
          const { fromHex, toText } = await import("/ui/common/bytes.js");
          const held = async (key, message) => toText(await verified(parse(fromHex(message)), await publicKey(fromHex(key)), "statement"));
          const tried = keys.flatMap(key => messages.map(message => held(key, message).catch(error => error.check)));
          return [...await Promise.all(tried), await publicKey(new Uint8Array(96)).catch(error => error.check)];
        }""",
        [[key.hex() for key in keys], [message.hex() for message in messages]],
    )
    assert held == ["stated", "statement", "statement", "stated", "key"]
