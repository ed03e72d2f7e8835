"""Whatever is named to `gput attest`: told apart by content or refused politely, judged without breaking down, never accepted by luck."""

from __future__ import annotations

import base64
import time
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gput.attest.documents import judge
from gput.attest.inspecting import fields
from gput.attest.trust import Wish, load_trust
from shared.attestation.evidence_files import pieces_of
from shared.errors import BadRequest, GputError, VerificationFailed
from tests.attestation.cpu_world import AT
from tests.attestation.gpu_evidence_world import NONCE
from tests.attestation.test_tdx_fuzz import EDIT, mutated
from tests.gput.attest_world import DATA, Files, make

QUICK, LONG = 60, 4000
OWN = (BadRequest, VerificationFailed)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return make(tmp_path_factory.mktemp("fuzz"))


@cache
def seeds(folder: Path) -> tuple[bytes, ...]:
    return tuple(path.read_bytes() for path in sorted(folder.iterdir()))


def hostile(folder: Path) -> st.SearchStrategy[bytes]:
    pick = st.sampled_from(seeds(folder))
    edited = st.builds(mutated, pick, pick, st.lists(EDIT, min_size=1, max_size=4))
    wrapped = st.one_of(edited.map(base64.b64encode), edited.map(lambda data: data.hex().encode()))
    return st.one_of(edited, edited, wrapped, st.binary(max_size=2000), st.text().map(str.encode))


def tried(files: Files, examples: int) -> int:
    """How many were told apart."""
    wish = Wish(at=AT, nonce=NONCE, report_data=DATA, role="orchestrator", allow_emulated=True)
    known = 0

    @settings(
        max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, database=None
    )
    @given(hostile(files.folder))
    def each(data: bytes) -> None:
        nonlocal known
        begun = time.process_time()
        try:
            pieces = pieces_of(data, "x")
            known += 1
            for piece in pieces:
                try:
                    assert fields(piece) is not None
                except OWN:
                    continue
            judged = judge(pieces, load_trust(files.trust, pieces, wish), wish)
            assert judged
            for one in judged:
                assert (one.record["verdict"] == "accepted") == (one.refusal is None)
        except OWN:
            pass
        assert time.process_time() - begun < 5

    each()
    return known


def test_hostile_files_meet_our_own_errors(files: Files) -> None:
    assert tried(files, QUICK) > QUICK // 10


@pytest.mark.slow
def test_hostile_files_meet_our_own_errors_for_long(files: Files) -> None:
    assert tried(files, LONG) > LONG // 10


@pytest.mark.parametrize("name", ["quote.bin", "report.bin", "snp.bin"])
def test_no_bit_of_signed_evidence_is_free(files: Files, name: str) -> None:
    wish = Wish(at=AT, nonce=NONCE, report_data=DATA, role="orchestrator", allow_emulated=True)
    beside = [p for other in ("chain.pem", "vcek.der") for p in pieces_of((files.folder / other).read_bytes(), other)]
    good = (files.folder / name).read_bytes()
    trust = load_trust(files.trust, beside, wish)
    [whole] = judge([*pieces_of(good, name), *beside], trust, wish)
    assert whole.refusal is None
    for at in range(0, len(good), len(good) // 60):
        changed = good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :]
        try:
            [found] = judge([*pieces_of(changed, name), *beside], trust, wish)
        except GputError:
            continue
        except ValueError:  # not told apart any more: then the chain beside it is what is judged
            continue
        assert found.refusal is not None or found.kind == "certificates", at


def test_repeated_and_nested_forms_are_bounded() -> None:
    many = b"[" + b'{"quote": ""},' * 300 + b'{"quote": ""}]'
    for data in (many, b'{"items": []}', b'{"items": [[[]]]}', b'{"token": {}}', b'{"token": "{}"}'):
        with pytest.raises(OWN):
            pieces_of(data, "x")
    assert pieces_of(b'{"token": "eyJ.a.b"}', "x")[0].fault
    with pytest.raises(OWN):
        pieces_of(b"\n".join([b'{"quote": 1}'] * 3), "x")
