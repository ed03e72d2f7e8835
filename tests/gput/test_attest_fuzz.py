"""Whatever is named to `gput attest`: told apart by content or refused politely, judged without breaking down, never accepted by luck."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from random import Random

import pytest
from cryptography import x509

from gput.attest.documents import judge
from gput.attest.inspecting import fields
from gput.attest.trust import Wish, load_trust
from gput.commands.attest import moment
from shared.attestation.evidence_files import pieces_of
from shared.errors import BadRequest, GputError, VerificationFailed
from tests.attestation.cpu_world import AT
from tests.attestation.gpu_evidence_world import NONCE
from tests.attestation.test_tdx_fuzz import EDITS, mutated
from tests.cpu_time import cpu_seconds
from tests.gput.attest_world import DATA, Files, make

QUICK, LONG = 60, 4000
OWN = (BadRequest, VerificationFailed)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return make(tmp_path_factory.mktemp("fuzz"))


@cache
def seeds(folder: Path) -> tuple[bytes, ...]:
    return tuple(path.read_bytes() for path in sorted(folder.iterdir()))


def hostile(folder: Path, count: int) -> Iterator[bytes]:
    """The same files in every run. (A search by hypothesis would depend on which modules its process has imported: it draws from the
    constants that it finds in them.)"""
    draw, good = Random("hostile evidence"), seeds(folder)
    for _ in range(count):
        edits = [
            (draw.choice(EDITS), draw.random(), draw.randbytes(draw.randrange(25)), draw.getrandbits(32))
            for _ in range(draw.randint(1, 4))
        ]
        edited = mutated(draw.choice(good), draw.choice(good), edits)
        wrapped = base64.b64encode(edited) if draw.random() < 0.5 else edited.hex().encode()
        noise = draw.randbytes(draw.randrange(2000))
        text = "".join(chr(draw.randrange(0xD800)) for _ in range(draw.randrange(40))).encode()
        yield draw.choice((edited, edited, wrapped, noise, text))


def tried(files: Files, count: int) -> int:
    """How many were told apart."""
    told: set[bytes] = set()
    for data in hostile(files.folder, count):

        def once(data: bytes = data) -> None:
            with suppress(*OWN):
                _judged(files, data, told)

        assert cpu_seconds(once, 5) < 5
    return len(told)


def _judged(files: Files, data: bytes, told: set[bytes]) -> None:
    wish = Wish(at=AT, nonce=NONCE, report_data=DATA, role="orchestrator", allow_emulated=True)
    pieces = pieces_of(data, "x")
    told.add(data)
    for piece in pieces:
        try:
            assert fields(piece) is not None
        except OWN:
            continue
    judged = judge(pieces, load_trust(files.trust, pieces, wish), wish)
    assert judged
    for one in judged:
        assert (one.record["verdict"] == "accepted") == (one.refusal is None)


def test_hostile_files_meet_our_own_errors(files: Files) -> None:
    assert tried(files, QUICK) > QUICK // 10


@pytest.mark.slow
def test_hostile_files_meet_our_own_errors_for_long(files: Files) -> None:
    assert tried(files, LONG) > LONG // 10


def _same_certificates(one: bytes, other: bytes) -> bool:
    """Whether they differ in nothing but how the chain at their end is written: in a break between two lines of base64, which nobody signs
    (RFC 7468 section 3)."""
    begin = one.find(b"-----BEGIN")
    if begin < 0 or one[:begin] != other[:begin]:
        return False
    try:
        chains = [x509.load_pem_x509_certificates(data[begin:].rstrip(b"\0")) for data in (one, other)]
    except ValueError:
        return False
    return chains[0] == chains[1]


def test_how_a_chain_breaks_its_lines_is_nobodys_word_and_all_else_is(files: Files) -> None:
    good = (files.folder / "quote.bin").read_bytes()
    line = good.index(b"\n", good.index(b"-----BEGIN") + 64)
    for at, same in ((line, True), (line - 1, False), (20, False)):
        assert _same_certificates(good, good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :]) is same


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
        if _same_certificates(good, changed):
            continue
        try:
            [found] = judge([*pieces_of(changed, name), *beside], trust, wish)
        except GputError:
            continue
        except ValueError:  # not told apart any more: then the chain beside it is what is judged
            continue
        assert found.refusal is not None or found.kind == "certificates", at


@pytest.mark.parametrize("at", ["0001-01-01T00:00:00Z", "1969-12-31T23:59:59Z", "9999-12-31T23:59:59Z"])
def test_any_time_of_the_calendar_can_be_judged_as_of(files: Files, at: str) -> None:
    wish = Wish(at=moment(at), nonce=NONCE, report_data=DATA, role="orchestrator", allow_emulated=True)
    for data in seeds(files.folder):
        pieces = pieces_of(data, "x")
        assert judge(pieces, load_trust(files.trust, pieces, wish), wish)


@pytest.mark.timeout(60)  # a pattern that allowed for blanks in two places took days for this
@pytest.mark.parametrize("first", [b"A", b"0x0", b"A="])
def test_blanks_without_end_are_read_once(first: bytes) -> None:
    with pytest.raises(OWN):
        pieces_of(first + b" " * (1 << 20) + b"!", "x")


def test_repeated_and_nested_forms_are_bounded() -> None:
    many = b"[" + b'{"quote": ""},' * 300 + b'{"quote": ""}]'
    for data in (many, b'{"items": []}', b'{"items": [[[]]]}', b'{"token": {}}', b'{"token": "{}"}'):
        with pytest.raises(OWN):
            pieces_of(data, "x")
    assert pieces_of(b'{"token": "eyJ.a.b"}', "x")[0].fault
    with pytest.raises(OWN):
        pieces_of(b"\n".join([b'{"quote": 1}'] * 3), "x")
