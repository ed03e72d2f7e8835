"""Hostile TDX evidence: whatever arrives, one refusal of our own family, no hang, no flood of memory, and nothing forged is accepted.

Seeds are the emulator's own evidence and, where they lie beside this checkout, real quotes, collateral and logs; they are cut, spliced,
flipped and stretched. The quick round is part of every test run; `-m slow` runs the same targets a hundred times longer.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from cryptography import x509
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from shared.attestation import dcap
from shared.attestation.ccel import parse_ccel, replay_ccel
from shared.attestation.collateral import Collateral, verify_collateral
from shared.attestation.cpu_verifier import examine_cpu_evidence
from shared.attestation.pck import SGX_EXTENSION, read_pck_chain, sgx_entries
from shared.attestation.quote import MAX_QUOTE_BYTES, parse_quote
from shared.claims import event_log as events
from shared.claims.event_log import Entry, Event, EventLog, parse_log
from shared.errors import BadRequest, VerificationFailed
from shared.wire.collateral import CollateralAnswers
from tests.attestation.cpu_world import AT, Machine, evidence
from tests.attestation.test_event_log import EVENTS, ccel, log
from tests.cpu_time import cpu_seconds

QUICK, LONG = 120, 12_000
FAMILY = (BadRequest, VerificationFailed)
REAL = Path(__file__).parents[3] / "shared" / "evidence" / "tdx"
MACHINE, MACHINE5 = Machine("fuzz"), Machine("fuzz 5", 5)
DATA = bytes(64)
Target = Callable[[bytes], None]


@cache
def real(pattern: str) -> tuple[bytes, ...]:
    return tuple(path.read_bytes() for path in sorted(REAL.glob(pattern))) if REAL.is_dir() else ()


@cache
def quotes() -> tuple[bytes, ...]:
    five = MACHINE5.quote(DATA)
    own = (MACHINE.raw(DATA), MACHINE5.raw(DATA), MACHINE5.requote(five, tail=b""))
    return (*own, MACHINE5.requote(five, tail=five.body.tail + bytes(237)), *real("quotes/*.bin"))


@cache
def chains() -> tuple[bytes, ...]:
    return tuple(parse_quote(quote).signature.certification for quote in quotes())


@cache
def extensions() -> tuple[bytes, ...]:
    leaves = [x509.load_pem_x509_certificates(chain.rstrip(b"\0"))[0] for chain in chains()]
    values = [leaf.extensions.get_extension_for_oid(SGX_EXTENSION).value for leaf in leaves]
    return tuple(value.value for value in values if isinstance(value, x509.UnrecognizedExtension))


@cache
def bundles() -> tuple[bytes, ...]:
    return (MACHINE.collateral.document(), *real("collateral/*.json"))


@cache
def logs() -> tuple[bytes, ...]:
    hidden = EventLog(start={"3": "11" * 48}, entries=(Entry(event=EVENTS[0]), Entry(register=3, digest="22" * 48)))
    return log(*EVENTS).to_bytes(), hidden.to_bytes()


@cache
def boot_logs() -> tuple[bytes, ...]:
    return (
        ccel((1, 8, bytes(48)), (2, 3, bytes(48)), (4, 8, bytes(48))),
        *(raw[:30_000] for raw in real("eventlog/*ccel.dat")),
    )


EDITS = ("flip", "set", "cut", "insert", "number", "splice", "end")
EDIT = st.tuples(
    st.sampled_from(EDITS),
    st.floats(0, 1),
    st.binary(max_size=24),
    st.integers(0, 2**32 - 1),
)


def mutated(seed: bytes, other: bytes, edits: list[tuple[str, float, bytes, int]]) -> bytes:
    """The seed after some edits, each at a place that scales with the length."""
    data = bytearray(seed)
    for kind, where, chunk, number in edits:
        at = int(where * len(data))
        if kind == "flip" and at < len(data):
            data[at] ^= 1 << number % 8
        elif kind == "set":
            data[at : at + len(chunk)] = chunk
        elif kind == "cut":
            del data[at : at + number % 200]
        elif kind == "insert":
            data[at:at] = chunk
        elif kind == "number":
            size = (1, 2, 4)[number % 3]
            data[at : at + size] = (number & (1 << 8 * size) - 1).to_bytes(size, "little")
        elif kind == "splice":
            data[at:] = other[int(where * len(other)) :]
        elif kind == "end":
            del data[at:]
    return bytes(data)


def hostile(seeds: Callable[[], tuple[bytes, ...]]) -> st.SearchStrategy[bytes]:
    pick = st.deferred(lambda: st.sampled_from(seeds()))
    edited = st.builds(mutated, pick, pick, st.lists(EDIT, min_size=1, max_size=6))
    return st.one_of(edited, st.binary(max_size=2048))


# --------------------------------------------------------------------------------------- targets


def layout(data: bytes) -> None:
    with suppress(BadRequest):
        quote = parse_quote(data)
        assert data.startswith(quote.exact)
        assert not any(data[len(quote.exact) :])


def examined(data: bytes) -> None:
    """The whole recipe; what it believes was signed."""
    trust = MACHINE.trust()
    found = examine_cpu_evidence(
        evidence(data), report_data=DATA, role="orchestrator", roots=trust.roots, reference=trust.reference,
        policy=trust.policy, at=AT, collateral=trust.collateral,
    )  # fmt: skip
    if found.checks.refused() is None:
        assert found.quote is not None
        assert found.quote.signed == parse_quote(MACHINE.raw(DATA)).signed


def chain(data: bytes) -> None:
    with suppress(VerificationFailed):
        read_pck_chain(data, MACHINE.roots.certificates)


def extension(data: bytes) -> None:
    with suppress(VerificationFailed):
        sgx_entries(data)


def collateral(data: bytes) -> None:
    with suppress(*FAMILY):
        verify_collateral(Collateral.parse(data), MACHINE.maker.root.certificate)


def answers(data: bytes) -> None:
    with suppress(*FAMILY):
        text = data.decode("latin-1")
        Collateral.from_answers(CollateralAnswers(data, text, data, text, data, text, data))


def revocation_list(data: bytes) -> None:
    with suppress(*FAMILY):
        verify_collateral(replace(MACHINE.collateral, pck_crl=data), MACHINE.maker.root.certificate)


def engine(data: bytes) -> None:
    with suppress(VerificationFailed):
        dcap.judge(data, MACHINE.collateral, MACHINE.root_der, AT)


def event_log(data: bytes) -> None:
    with suppress(BadRequest):
        assert len(events.replay(parse_log(data))) == 4


def boot_log(data: bytes) -> None:
    with suppress(BadRequest):
        assert set(replay_ccel(parse_ccel(data))) <= set(range(4))


def crls() -> tuple[bytes, ...]:
    return (MACHINE.collateral.pck_crl, MACHINE.collateral.root_ca_crl, *real("pcs-raw/*.crl"))


def service_answers() -> tuple[bytes, ...]:
    own = f'{{"tcbInfo":{MACHINE.collateral.tcb_info},"signature":"{MACHINE.collateral.tcb_info_signature.hex()}"}}'
    return (own.encode(), *real("pcs-raw/*.json"))


TARGETS: dict[str, tuple[Target, Callable[[], tuple[bytes, ...]]]] = {
    "layout": (layout, quotes),
    "recipe": (examined, quotes),
    "chain": (chain, chains),
    "sgx-extension": (extension, extensions),
    "collateral": (collateral, bundles),
    "service-answers": (answers, service_answers),
    "revocation-list": (revocation_list, crls),
    "engine": (engine, quotes),
    "event-log": (event_log, logs),
    "boot-log": (boot_log, boot_logs),
}


def run(name: str, examples: int) -> None:
    target, seeds = TARGETS[name]
    quiet = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
    phases = (Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink)
    profile = settings(max_examples=examples, deadline=None, suppress_health_check=quiet, phases=phases)

    @profile
    @given(hostile(seeds))
    def each(data: bytes) -> None:
        target(data)

    each()


@pytest.mark.parametrize("name", TARGETS)
def test_hostile_input_meets_one_refusal(name: str) -> None:
    run(name, QUICK)


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_hostile_input_meets_one_refusal_for_long(name: str) -> None:
    run(name, LONG)


def test_lengths_that_lie_take_no_memory() -> None:
    """Every length field at its largest, and inputs as large as they may be sent: nothing is reserved before it is there."""
    quote, boot = MACHINE.raw(DATA), boot_logs()[0]
    lies = [
        quote[:at] + b"\xff\xff\xff\xff" + quote[at + 4 :] for at in (632, 636 + 130, 636 + 134 + 448, 636 + 134 + 484)
    ]
    giants: list[tuple[Target, bytes]] = [
        *((layout, lie) for lie in lies),
        *((examined, lie) for lie in lies),
        *((boot_log, boot[:at] + b"\xff\xff\xff\xff" + boot[at + 4 :]) for at in range(0, 64, 4)),
        (layout, b"\0" * (8 * MAX_QUOTE_BYTES)),
        (boot_log, b"\0" * 1_000_000),
        (event_log, b"[" * 1_000_000),
        (collateral, b"[" * 1_000_000),
        (chain, b"-----BEGIN CERTIFICATE-----\n" * 40_000),
        (extension, b"\x30\x84\xff\xff\xff\xff" * 1000),
    ]
    tracemalloc.start()
    try:
        for target, data in giants:
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            target(data)
            assert tracemalloc.get_traced_memory()[1] - before < 4 * len(data) + 4_000_000
    finally:
        tracemalloc.stop()


def test_the_largest_event_log_is_read_in_no_time() -> None:
    entries = tuple(Entry(event=Event(register=3, type="a", content={"n": n})) for n in range(events.MAX_EVENTS))
    largest = EventLog(entries=entries).to_bytes()
    assert cpu_seconds(lambda: event_log(largest), 0.5) < 0.5
