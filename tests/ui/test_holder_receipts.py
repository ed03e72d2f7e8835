"""The holder's page verifies its receipts in the browser: what holds, what each flipped bit is called, and what it says where it cannot."""

from __future__ import annotations

import base64
import json
import random
import re
from typing import Any

import pytest

from shared.protocol.merkle import consistency_proof, leaf_hash, root
from tests.ui.conftest import NewTab
from tests.ui.stage import OWNER_READER, UiStage

BUNDLE = """async session => (await import("/ui/verify.js")).bundle(`/v1/requests/${session}`, session)"""
CHECK = """async bundle => {
  const { whole, results } = await (await import("/ui/own_receipts.js")).checkOwnReceipts(bundle, bundle.session);
  return [...whole.filter(one => !one.ok).map(one => `${one.name}: ${one.detail}`),
    ...results.filter(one => !one.ok).map(one => `leaf ${one.index}: ${one.check}: ${one.detail}`)];
}"""
MINE = [0, 3]
"""Leaves of the stage's holder in its finished session: the first of each round."""


@pytest.fixture
def page(tab: NewTab, stage: UiStage) -> Any:
    """A page of the holder, to run its modules in."""
    page = tab(stage.holder.url, stage.tokens["auditor"]).open()
    page.get_by_role("heading", name="Policy").wait_for()
    return page


def flipped(text: str, draw: random.Random) -> str:
    """The same text with one bit flipped of the bytes that it writes in hex or base64; else another letter."""
    if set(text) <= set("0123456789abcdef"):
        at = draw.randrange(len(text))
        return text[:at] + "0123456789abcdef"[int(text[at], 16) ^ 1 << draw.randrange(4)] + text[at + 1 :]
    data = bytearray(base64.b64decode(text))
    data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    return base64.b64encode(bytes(data)).decode()


def spoilt(bundle: Any, way: tuple[str | int, ...], draw: random.Random) -> Any:
    copy = json.loads(json.dumps(bundle))
    at: Any = copy
    for step in way[:-1]:
        at = at[step]
    value = at[way[-1]]
    at[way[-1]] = value + 1 if isinstance(value, int) else flipped(value, draw)
    return copy


def test_own_receipts_hold_and_every_flipped_bit_is_named(page: Any, stage: UiStage) -> None:
    bundle = page.evaluate(BUNDLE, stage.sessions["done"])
    assert ([leaf["index"] for leaf in bundle["leaves"]], page.evaluate(CHECK, bundle)) == (MINE, [])
    draw = random.Random(11)
    for _ in range(60):
        at = draw.randrange(len(MINE))
        found = page.evaluate(CHECK, spoilt(bundle, ("leaves", at, "leaf"), draw))
        assert [line for line in found if line.startswith(f"leaf {MINE[at]}: ")] == found != []


ELSEWHERE: list[tuple[tuple[str | int, ...], str]] = [
    (("keys", 0, "signing_key"), "key"), (("keys", 0, "statement_key"), "key"), (("keys", 0, "device"), "leaf 0: device: "),
    (("keys", 0, "orchestrator_runtime_data"), "leaf 0: known key: "), (("keys", 0, "holder_runtime_data"), "leaf 0: own channel: "),
    (("keys", 0, "gpu_evidence"), "leaf 0: GPU evidence: "),
    (("log", "root"), "the tree head"), (("log", "signature"), "the tree head"), (("log", "key"), "the tree head"),
    (("log", "time"), "the tree head"), (("log", "size"), "the tree head"), (("log", "remembered", "root"), "the log extends"),
    (("log", "remembered", "size"), "the log extends"), (("leaves", 1, "path", 0), "leaf 3: inclusion proof: "),
    (("leaves", 0, "index"), "leaf 1: inclusion proof: "), (("agreement", "manifest"), "the manifest"),
    (("agreement", "digest"), "the manifest"), (("agreement", "public_key"), "the manifest"),
    (("agreement", "decision", "document"), "this holder's decision"), (("agreement", "decision", "signature"), "this holder's decision"),
    (("agreement", "dataset_root"), "this holder's decision"), (("visits", 1, "commitment"), "leaf 3: own data: commitment"),
    (("visits", 0, "length"), "leaf 0: own data: length"), (("visits", 0, "records"), "leaf 0: own data: records"),
    (("visits", 0, "attempt"), "leaf 0: own visit: attempt"), (("visits", 0, "epoch"), "leaf 0: own visit: "),
]  # fmt: skip
NO_KEY = ("the keys this holder attested", "the tree head", "leaf 0: device's signature")
"""A key of another number is none at all, or one that signed nothing of this."""


def test_a_flipped_bit_anywhere_else_is_named(page: Any, stage: UiStage) -> None:
    bundle = page.evaluate(BUNDLE, stage.sessions["done"])
    for way, named in ELSEWHERE:
        found = page.evaluate(CHECK, spoilt(bundle, way, random.Random(str(way))))
        assert found, way
        assert found[0].startswith(NO_KEY if named == "key" else named), (way, found)


def test_the_page_shows_what_it_verified_and_a_bit_that_is_flipped(tab: NewTab, stage: UiStage) -> None:
    one = tab(stage.holder.url, stage.tokens["auditor"])
    page = one.open(f"#/requests/{stage.sessions['done']}")
    page.get_by_text("All hold: 2 leaves, 2 receipts among them").wait_for()
    for _ in range(5):
        page.get_by_role("button", name="Flip one bit of a copy").click()
        page.locator("#flipped", has_text="found").wait_for()
        assert "NOT FOUND" not in page.locator("#flipped").inner_text()
    assert f"gput receipts verify receipts-{stage.sessions['done']} --head 6:" in page.locator("main").inner_text()


def test_the_page_names_the_receipt_that_was_altered(tab: NewTab, stage: UiStage) -> None:
    one = tab(stage.holder.url, stage.tokens["auditor"])

    def answer(route: Any) -> None:
        reply = route.fetch()
        body = reply.json()
        body["items"][1]["receipt"] = flipped(body["items"][1]["receipt"], random.Random(12))
        route.fulfill(response=reply, json=body)

    one.page.route("**/log/receipts*", answer)
    page = one.open(f"#/requests/{stage.sessions['done']}")
    page.locator("#verdict.problem").wait_for()
    assert "Does not hold: leaf 3: " in page.locator("#verdict").inner_text().replace("\n", " ")
    one.shot("holder-receipts-altered")


def test_without_the_orchestrator_signatures_are_checked_and_nothing_more_is_claimed(
    tab: NewTab, stage: UiStage
) -> None:
    one = tab(stage.holder.url, stage.tokens["auditor"])
    away = {"detail": "The orchestrator does not answer.", "code": "peer-unreachable"}
    one.page.route("**/log", lambda route: route.fulfill(status=503, json=away))
    page = one.open(f"#/requests/{stage.sessions['done']}")
    page.locator("#verdict.problem").wait_for()
    assert "The orchestrator does not answer. (peer-unreachable)" in page.locator("#verdict").inner_text()
    assert page.get_by_text(re.compile("VERIFIED HERE")).count() == 0
    rows = page.get_by_role("region", name="Leaves of the log").get_by_role("row")
    assert rows.filter(has_text="inclusion in the log was not checked").count() == 2
    assert one.complaints.pop().startswith("error: Failed to load resource")  # the browser's own word on a 503


@pytest.mark.parametrize("lacking", ["Ed25519", "P-384"])
def test_a_browser_that_lacks_an_algorithm_says_which(tab: NewTab, stage: UiStage, lacking: str) -> None:
    refuse = f"""const before = SubtleCrypto.prototype.importKey;
      SubtleCrypto.prototype.importKey = function (format, raw, algorithm, ...rest) {{
        const refused = [algorithm.name, algorithm.namedCurve].includes("{lacking}");
        if (refused) return Promise.reject(new DOMException("no", "NotSupportedError"));
        return before.call(this, format, raw, algorithm, ...rest);
      }};"""
    for base, token, place in [
        (stage.holder.url, stage.tokens["auditor"], f"#/requests/{stage.sessions['done']}"),
        (stage.orchestrator.url, OWNER_READER, f"#/sessions/{stage.sessions['done']}/receipts"),
    ]:
        one = tab(base, token)
        one.page.add_init_script(refuse)
        page = one.open(place)
        page.locator("#verdict.problem").wait_for()
        said = page.locator("#verdict").inner_text()
        assert said.startswith("Not verified here: ")
        assert lacking in said
        assert page.get_by_text(re.compile("VERIFIED HERE")).count() == 0


def test_consistency_proofs_are_judged_as_the_services_do(page: Any) -> None:
    leaves = [leaf_hash(bytes([n])) for n in range(18)]
    cases, wrong = list[Any](), list[Any]()
    for size in range(1, 19):
        for old in range(size + 1):
            before, now = [root(leaves[:n]).hex() for n in (old, size)]
            path = [node.hex() for node in consistency_proof(old, leaves[:size])]
            cases.append([old, before, size, now, path])
            wrong.append([old, before, size, now, [*path, now]])
            wrong.append([old, flipped(before, random.Random(size)), size, now, path])
            if path:
                wrong.append([old, before, size, now, path[:-1]])
                wrong.append([old, before, size, flipped(now, random.Random(old)), path])
    held = page.evaluate(
        """async all => {
          const { checkConsistency } = await import("/ui/common/merkle.js");
          const { fromHex } = await import("/ui/common/bytes.js");
          return Promise.all(all.map(([old, before, size, now, path]) =>
            checkConsistency({ size: old, root: fromHex(before) }, { size, root: fromHex(now) }, path.map(fromHex))
              .then(() => true, error => error.check ? false : null)));
        }""",
        [*cases, *wrong],
    )
    assert held == [True] * len(cases) + [False] * len(wrong)
