"""The configfs-tsm backend against a faithful kernel: quotes and reports that fit the question, races, busy hosts, absent hardware."""

from __future__ import annotations

import asyncio
import base64
import errno
from pathlib import Path
from typing import Any

import pytest

from shared.attestation.cvm_verifier import verify_cvm_evidence
from shared.attestation.quote import parse_quote
from shared.attestation.snp_verifier import VerifiedSnp
from shared.crypto.secret import Secret
from shared.errors import BadRequest, ConfigurationError, Unavailable
from shared.service.evidence import ConfigfsTsmProvider, provider
from shared.wire.snp_certificates import ASK, VCEK
from tests.attestation.cpu_world import AT, Machine
from tests.attestation.snp_world import CHIP, body, good_chip, platform, signed, table
from tests.service.tsm_kernel import ROOT, Entry, FakeTsm, failure

DATA = bytes(range(64))
MACHINE = Machine()


def tdx_quote(inblob: bytes, _level: int = 0) -> tuple[bytes, bytes]:
    """As GCP's host gives it: padded with zero bytes."""
    quote = MACHINE.raw(inblob, "holder-north")
    return quote.ljust(8000, b"\0"), b""


def snp_report(inblob: bytes, level: int = 0) -> tuple[bytes, bytes]:
    certificates = table({VCEK: good_chip().leaf, ASK: platform().ask.der})
    return signed(body(report_data=inblob, vmpl=level), good_chip().key), certificates


def tdx(**changes: Any) -> FakeTsm:
    return FakeTsm(**{"name": "tdx_guest", "make": tdx_quote, **changes})


def snp(**changes: Any) -> FakeTsm:
    return FakeTsm(**{"name": "sev_guest", "make": snp_report, **changes})


def guest(kernel: FakeTsm, **changes: Any) -> ConfigfsTsmProvider:
    return ConfigfsTsmProvider(**{"files": kernel, "pause": lambda _: None, **changes})


# ----------------------------------------------------------------- evidence


async def test_a_tdx_quote_covers_the_question_and_verifies() -> None:
    kernel = tdx()
    cvm = guest(kernel)
    kernel.log.clear()
    evidence = await cvm.quote(DATA)
    assert (evidence.kind, evidence.endorsements) == ("tdx-quote", "")
    assert parse_quote(base64.b64decode(evidence.quote)).body.report_data == DATA
    assert kernel.log == ["mkdir", "inblob 64", "report", "rmdir"]
    assert not kernel.entries
    assert not kernel.opened
    found = verify_cvm_evidence(evidence, report_data=DATA, role="data_holder", trust=MACHINE.trust(), at=AT)
    assert "report-data" in found.checks


async def test_an_snp_report_comes_with_the_hosts_certificates_and_verifies() -> None:
    evidence = await guest(snp()).quote(DATA)
    assert evidence.kind == "snp-report"
    trust = MACHINE.trust(snp=platform().trust())
    found = verify_cvm_evidence(evidence, report_data=DATA, role="data_holder", trust=trust, at=AT)
    assert isinstance(found, VerifiedSnp)
    assert found.platform_id == CHIP["Milan"].hex()


async def test_beneath_an_svsm_the_guests_own_level_is_asked_for() -> None:
    kernel = snp(privlevel_floor=1)
    cvm = guest(kernel)
    kernel.log.clear()
    evidence = await cvm.quote(DATA)
    assert kernel.log == ["mkdir", "privlevel 1", "inblob 64", "report", "rmdir"]
    assert base64.b64decode(evidence.quote)[0x30] == 1


async def test_a_host_without_certificates_gives_a_report_all_the_same() -> None:
    evidence = await guest(snp(make=lambda data, _: (snp_report(data)[0], b""))).quote(DATA)
    assert evidence.endorsements == ""


async def test_quotes_at_the_same_time_do_not_mix() -> None:
    cvm, questions = guest(snp()), [bytes([number]) * 64 for number in range(8)]
    for question, evidence in zip(questions, await asyncio.gather(*map(cvm.quote, questions)), strict=True):
        assert base64.b64decode(evidence.quote)[0x50:0x90] == question


@pytest.mark.parametrize("length", [0, 63, 65])
async def test_only_64_bytes_are_a_question(length: int) -> None:
    with pytest.raises(BadRequest):
        await guest(tdx()).quote(bytes(length))


# -------------------------------------------------------------------- races


@pytest.mark.parametrize("kernel", [tdx(), snp()], ids=["tdx", "snp"])
@pytest.mark.parametrize("moment", ["outblob", "generation"])
async def test_another_writer_is_noticed_and_the_question_asked_again(kernel: FakeTsm, moment: str) -> None:
    attempts: list[int] = []

    def intruder(attribute: str, entry: Entry) -> None:
        if attribute == moment and entry.write_generation == 1 and len(attempts) < 2:
            attempts.append(1)
            kernel.intrude(entry, b"\xee" * 64)

    cvm = guest(kernel)
    kernel.before_read = intruder
    evidence = await cvm.quote(DATA)
    assert DATA in base64.b64decode(evidence.quote)
    assert len(attempts) == 2
    assert not kernel.entries


async def test_a_writer_between_report_and_certificates_is_noticed() -> None:
    kernel, hits = snp(), [0]

    def intruder(attribute: str, entry: Entry) -> None:
        if attribute == "auxblob" and not hits[0]:
            hits[0] = 1
            kernel.intrude(entry, b"\xee" * 64)

    cvm = guest(kernel)
    kernel.before_read = intruder
    assert DATA in base64.b64decode((await cvm.quote(DATA)).quote)
    assert kernel.log.count("inblob 64") == 2


async def test_an_endless_race_ends_with_one_clear_error() -> None:
    kernel, pauses = tdx(), list[float]()
    cvm = guest(kernel, pause=pauses.append)
    kernel.before_read = lambda attribute, entry: (
        kernel.intrude(entry, b"\xee" * 64) if attribute == "outblob" else None
    )
    with pytest.raises(Unavailable) as caught:
        await cvm.quote(DATA)
    assert caught.value.code == "evidence-raced"
    assert caught.value.remedy
    assert pauses == [0.05, 0.1, 0.2, 0.4]
    assert not kernel.entries


async def test_a_report_over_other_bytes_is_never_handed_on() -> None:
    """Should the count be right and the report wrong all the same."""
    with pytest.raises(Unavailable):
        await guest(tdx(make=lambda _data, _level: tdx_quote(b"\xee" * 64))).quote(DATA)


# --------------------------------------------------------------- busy hosts


@pytest.mark.parametrize("number", [errno.EBUSY, errno.EAGAIN, errno.EINTR, errno.ETIMEDOUT])
async def test_a_busy_host_is_asked_again(number: int) -> None:
    answers: list[int] = [number, number, 0]

    def make(data: bytes, level: int) -> tuple[bytes, bytes]:
        if error := answers.pop(0):
            raise failure(error)
        return tdx_quote(data, level)

    assert (await guest(tdx(make=make)).quote(DATA)).quote
    assert not answers


async def test_a_host_that_stays_busy_is_given_up() -> None:
    def make(_data: bytes, _level: int) -> tuple[bytes, bytes]:
        raise failure(errno.EBUSY)

    kernel = tdx(make=make)
    with pytest.raises(Unavailable) as caught:
        await guest(kernel).quote(DATA)
    assert caught.value.code == "evidence-busy"
    assert not kernel.entries


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOTTY, errno.ENOMEM, errno.EINVAL])
async def test_other_errors_are_said_at_once(number: int) -> None:
    calls: list[int] = []

    def make(_data: bytes, _level: int) -> tuple[bytes, bytes]:
        calls.append(1)
        raise failure(number)

    kernel = tdx(make=make)
    with pytest.raises(Unavailable) as caught:
        await guest(kernel).quote(DATA)
    assert (caught.value.code, len(calls)) == ("evidence-unusable", 1)
    assert not kernel.entries


@pytest.mark.parametrize("certificates", [b"x", bytes(23) + b"\x01", table({VCEK: b"leaf"}) + b"more"])
async def test_a_malformed_certificate_table_is_refused(certificates: bytes) -> None:
    with pytest.raises(Unavailable) as caught:
        await guest(snp(make=lambda data, _: (snp_report(data)[0], certificates))).quote(DATA)
    assert "certificate table" in caught.value.detail


async def test_more_than_the_kernel_may_give_is_refused() -> None:
    for size in (33 * 1024, 70 * 1024):
        with pytest.raises(Unavailable):
            await guest(tdx(make=lambda data, _, size=size: (data.ljust(size, b"\0"), b""))).quote(DATA)


async def test_a_provider_that_goes_away_or_changes_is_noticed() -> None:
    kernel = tdx()
    cvm = guest(kernel)
    kernel.name = None
    with pytest.raises(Unavailable):
        await cvm.quote(DATA)
    kernel.name, kernel.make = "sev_guest", snp_report
    with pytest.raises(Unavailable) as caught:
        await cvm.quote(DATA)
    assert "tdx_guest" in caught.value.detail


async def test_an_entry_that_cannot_be_removed_does_not_cost_the_quote() -> None:
    kernel = tdx()
    cvm = guest(kernel)
    kernel.rmdir_error = errno.EBUSY
    assert (await cvm.quote(DATA)).quote


# ---------------------------------------------------------- absent hardware


@pytest.mark.parametrize(
    ("kernel", "says"),
    [
        (tdx(name=None), "no evidence provider is loaded"),
        (tdx(root="/elsewhere"), "no configfs-tsm folder"),
        (tdx(mkdir_error=errno.EACCES), "Permission denied"),
        (tdx(mkdir_error=errno.EROFS), "Read-only"),
        (tdx(name="arm_cca_guest"), "arm_cca_guest"),
    ],
    ids=["none", "path", "rights", "read-only", "other"],
)
def test_absent_hardware_is_one_sentence_at_start(kernel: FakeTsm, says: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        guest(kernel)
    assert caught.value.code == "evidence-backend"
    assert says in caught.value.detail
    assert caught.value.remedy or caught.value.expected
    assert not kernel.entries


def test_a_plain_folder_is_no_kernel(tmp_path: Path) -> None:
    for path in (tmp_path / "absent", tmp_path):
        with pytest.raises(ConfigurationError) as caught:
            provider(f"configfs-tsm:{path}")
        assert "no configfs-tsm folder" in caught.value.detail
        assert caught.value.remedy
    assert not list(tmp_path.iterdir())  # nothing stays behind


def test_the_usual_path_is_the_default() -> None:
    kernel = tdx()
    guest(kernel, path="")
    assert kernel.root == ROOT
    assert kernel.log == ["mkdir", "rmdir"]


# ------------------------------------------------------------- sealing keys


@pytest.mark.parametrize(("kernel", "says"), [(tdx(), "TDX module"), (snp(), "MSG_KEY_REQ")], ids=["tdx", "snp"])
async def test_hardware_without_a_released_key_says_which_setting_helps(kernel: FakeTsm, says: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        await guest(kernel).derived_key("gput/journal")
    assert says in caught.value.detail
    assert "sealing_key_file" in (caught.value.remedy or "")


async def test_keys_of_a_released_secret_are_stable_and_bound_to_label_and_secret() -> None:
    first, second = guest(tdx(), sealing_key=Secret(b"a" * 32)), guest(tdx(), sealing_key=Secret(b"b" * 32))
    keys = [await first.derived_key("x"), await first.derived_key("y"), await second.derived_key("x")]
    assert len({key.reveal() for key in keys} | {b"a" * 32}) == 4
    assert all(len(key) == 32 for key in keys)
    assert await first.derived_key("x") == keys[0]
    for label in ("", "x" * 121):
        with pytest.raises(BadRequest):
            await first.derived_key(label)
