"""Every problem code that the source can give is explained, every explanation is of such a code, and the texts are worth reading."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from gput.__main__ import COMMANDS
from shared.explanations import Explanation, explanations
from tests.architecture.problem_codes import Found, collect

ROOT = Path(__file__).parents[2]
CHAINS = ("gpu-chain", "gpu-driver-rim-chain", "gpu-vbios-rim-chain")
BY_HAND = {
    "data_holder/fitting.py: code": ["invalid-data"],  # or that of a finding, which is read where it is made
    "data_holder/visits.py: error.code[:64]": [],  # of an error raised elsewhere
    "gput/commands/demo.py: 'session-' + view['phase'].lower()": ["session-failed", "session-cancelled"],
    "gpu_agent/compute/fabric_messages.py: answer['code']": ["gpu-memory-failed"],
    "gpu_agent/compute/messages.py: message['code']": ["compute-out-of-memory", "compute-failed", "compute-killed"],
    "gpu_agent/compute/process.py: reply['code']": [],
    "orchestrator/in_clear.py: code or error.code": [],  # of an error raised elsewhere
    "orchestrator/ledger/heads.py: code": ["log-rolled-back", "log-split-view"],
    "shared/attestation/offers.py: what": [f"offer-{what}" for what in ("session", "holder", "channel", "manifest", "recipient")],
    "shared/attestation/p384_chain.py: self.code": [f"{chain}-broken" for chain in CHAINS],
    "shared/attestation/p384_chain.py: chain.code": [f"{chain}-expired" for chain in CHAINS],
    "shared/attestation/p384_chain.py: chain.code.removesuffix('-chain')": [
        f"{chain.removesuffix('-chain')}-root-unknown" for chain in CHAINS
    ],
    "shared/crypto/jws.py: code": ["token-type", "token-algorithm", "token-key"],
    "shared/service/evidence/configfs_tsm.py: last[0]": ["evidence-raced", "evidence-busy"],
    "shared/service/problems.py: code": [
        "not-found", "method-not-allowed", "body-too-large", "unsupported-media-type", "http-error",
    ],
    "shared/service/problem_reader.py: code": [],  # a peer's
}  # fmt: skip
"""What the reader cannot make out by itself -> the codes that a person found there."""
FIELDS = {"gpu_agent/hardware/grants.py": ["copy-refused"]}
"""Codes that are a field's default."""


@cache
def found() -> Found:
    return collect(ROOT)


def test_every_code_in_the_source_is_explained_and_every_explanation_is_of_one() -> None:
    by_hand = {code for codes in (*BY_HAND.values(), *FIELDS.values()) for code in codes}
    given = set(found().codes) | by_hand
    assert len(given) > 600  # the reader read
    unexplained = {code: found().codes.get(code) for code in sorted(given - explanations().keys())}
    assert not unexplained, "write what it means in shared/explanations"
    assert sorted(explanations().keys() - given) == [], "no source gives these any more"


def test_nothing_gives_a_code_that_the_reader_cannot_make_out() -> None:
    codes = {
        place: what for place, what in found().unread.items() if "code" in place.partition(": ")[2] or place in BY_HAND
    }
    assert codes.keys() - BY_HAND.keys() == set(), "say in BY_HAND which codes these are"


def test_every_text_says_what_why_and_what_to_do() -> None:
    for explained in explanations().values():
        _check(explained)


def _check(explained: Explanation) -> None:
    assert re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", explained.code)
    for text in (explained.means, explained.why, explained.do):
        assert text[0].isupper() or text[0] in "/`", text
        assert text.endswith("."), text
        assert "|" not in text
    for command in re.findall(r"`gput (\w+)", explained.means + explained.do):
        assert command in COMMANDS, command
    for page in re.findall(r"docs/[\w-]+\.md", explained.means + explained.do):
        assert (ROOT / page).is_file(), page
    for section in re.findall(r'"([A-Z][^"]+)"', explained.do):
        assert f"## {section}" in (ROOT / "docs/operations.md").read_text(), section
