"""Evidence for a service that is not root: by an entry that the machine's root made for it, and what each missing right says."""

from __future__ import annotations

import asyncio
import base64
import errno
import os
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from shared.attestation.cvm_verifier import verify_cvm_evidence
from shared.errors import ConfigurationError, Unavailable
from shared.service.evidence import provider
from shared.service.evidence.rtmr import RuntimeRegister
from tests.attestation.cpu_world import AT
from tests.service.test_configfs_tsm import DATA, MACHINE, guest, snp, tdx
from tests.service.tsm_kernel import ROOT, Entry, FakeTsm

USER = 10001
"""The containers' user, which has no rights over what is root's."""
NAME = "gput-holder"
COMPOSE = Path(__file__).parents[2] / "deploy" / "compose"


def refusal(kernel: FakeTsm, **how: str) -> ConfigurationError:
    with pytest.raises(ConfigurationError) as caught:
        guest(kernel, **how)
    assert caught.value.code == "evidence-backend"
    return caught.value


@pytest.mark.parametrize(
    "kernel", [tdx(user=USER), snp(user=USER, privlevel_floor=1)], ids=["tdx", "snp beneath an svsm"]
)
async def test_an_entry_that_root_gave_a_service_answers_it_and_stays(kernel: FakeTsm) -> None:
    kernel.give(NAME, USER)
    cvm = guest(kernel, entry=NAME)
    for number in range(3):
        question = bytes([number]) * 64
        assert question in base64.b64decode((await cvm.quote(question)).quote)
    assert list(kernel.entries) == [NAME]
    assert not {"mkdir", "rmdir"} & set(kernel.log)


async def test_its_evidence_verifies_as_any_others() -> None:
    kernel = tdx(user=USER)
    kernel.give(NAME, USER)
    evidence = await guest(kernel, entry=NAME).quote(DATA)
    found = verify_cvm_evidence(evidence, report_data=DATA, role="data_holder", trust=MACHINE.trust(), at=AT)
    assert "report-data" in found.checks


async def test_questions_of_one_process_wait_for_one_another_and_anothers_are_noticed() -> None:
    kernel, hits = tdx(user=USER), list[str]()
    kernel.give(NAME, USER)
    cvm = guest(kernel, entry=NAME)
    questions = [bytes([number]) * 64 for number in range(8)]
    for question, evidence in zip(questions, await asyncio.gather(*map(cvm.quote, questions)), strict=True):
        assert question in base64.b64decode(evidence.quote)
    assert kernel.log.count("report") == len(questions)  # none was asked twice

    def intruder(attribute: str, entry: Entry) -> None:
        if attribute == "outblob" and not hits:
            hits.append(attribute)
            kernel.intrude(entry, b"\xee" * 64)

    kernel.before_read = intruder
    assert DATA in base64.b64decode((await cvm.quote(DATA)).quote)
    assert hits


def test_who_is_not_root_is_told_at_start_how_it_gets_evidence() -> None:
    told = refusal(tdx(user=USER))
    assert "Permission denied" in told.detail
    assert "configfs-tsm:#NAME" in str(told.remedy)
    absent = refusal(tdx(user=USER), entry=NAME)
    assert f"no report entry {ROOT}/{NAME}" in absent.detail
    assert "at each boot" in str(absent.remedy)


@pytest.mark.parametrize("kernel", [tdx(user=USER), snp(user=USER, privlevel_floor=1)], ids=["inblob", "privlevel"])
def test_an_entry_that_is_still_roots_is_refused_at_start_and_not_at_the_first_channel(kernel: FakeTsm) -> None:
    kernel.give(NAME, USER, [] if kernel.name == "tdx_guest" else ["inblob"])
    told = refusal(kernel, entry=NAME)
    assert "Permission denied" in told.detail
    assert f"{ROOT}/{NAME}/inblob" in str(told.remedy)
    assert str(os.getuid()) in str(told.remedy)
    assert kernel.log == []  # nothing was asked


async def test_an_entry_that_goes_away_is_said_and_not_made_by_others() -> None:
    kernel = tdx(user=USER)
    kernel.give(NAME, USER)
    cvm = guest(kernel, entry=NAME)
    del kernel.entries[NAME]
    with pytest.raises(Unavailable) as caught:
        await cvm.quote(DATA)
    assert caught.value.code == "evidence-unusable"


@pytest.mark.parametrize("rest", ["#", "#../x", "#a/b", "/sys/kernel/config/tsm/report#", "#-x", "#a#b"])
def test_what_is_no_name_of_an_entry_is_refused(rest: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        provider(f"configfs-tsm:{rest}")
    assert caught.value.code == "evidence-backend"
    assert "no name of a report entry" in caught.value.detail


def test_the_setting_names_folder_and_entry(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        provider(f"configfs-tsm:{tmp_path}#{NAME}")
    assert f"no report entry {tmp_path}/{NAME}" in caught.value.detail


# --------------------------------------------------------- runtime register


class Shown:
    """`rtmr3:sha384` that may be read only: root's, or on a file system that is mounted so."""

    name = "rtmr3:sha384"

    def __init__(self, error: int) -> None:
        self._error = error

    def __truediv__(self, _name: str) -> Shown:
        return self

    def exists(self) -> bool:
        return True

    def read_bytes(self) -> bytes:
        return b"\x07" * 48

    def open(self, _mode: str, buffering: int) -> None:
        assert buffering == 0
        raise OSError(self._error, os.strerror(self._error))


@pytest.mark.parametrize("error", [errno.EACCES, errno.EPERM, errno.EROFS])
async def test_a_register_that_may_not_be_extended_holds_up_no_quote(error: int) -> None:
    register = RuntimeRegister(Shown(error))  # type: ignore[arg-type]  # a folder with one file in it
    cvm = guest(tdx(), register=register)
    assert await cvm.registers() == {}
    assert (await cvm.quote(DATA)).quote


async def test_a_register_that_fails_otherwise_is_not_taken_for_absent() -> None:
    register = RuntimeRegister(Shown(errno.EIO))  # type: ignore[arg-type]  # as above
    with pytest.raises(Unavailable) as caught:
        await guest(tdx(), register=register).registers()
    assert caught.value.code == "register-unusable"


# --------------------------------------------------------- what the machine's root runs


def test_the_hosts_script_makes_what_the_containers_are_shown_and_gives_it_to_their_user(tmp_path: Path) -> None:
    tools, given = tmp_path / "tools", tmp_path / "given"
    tools.mkdir()
    (tools / "chown").write_text(f'#!/bin/sh\necho "$@" >> {given}\n')
    (tools / "mkdir").write_text('#!/bin/sh\n/bin/mkdir "$1" && : > "$1/inblob"\n')  # as the kernel lays an entry out
    for tool in tools.iterdir():
        tool.chmod(0o755)
    mounted = _mounted()
    assert len(mounted) == 3
    folder = tmp_path / "report"
    folder.mkdir()
    for _ in range(2):  # and once more, on a machine that has them
        subprocess.run(
            ["/bin/sh", COMPOSE / "tsm-entries.sh", *mounted],
            cwd=folder,
            check=True,
            env={"PATH": f"{tools}:/usr/bin:/bin"},
        )
    assert sorted(path.name for path in folder.iterdir()) == sorted(mounted)
    assert {f"{USER} {name}/inblob" for name in mounted} <= set(given.read_text().splitlines())


@pytest.mark.parametrize(
    "path", sorted((COMPOSE.parent).rglob("*.toml")), ids=lambda path: f"{path.parent.name}-{path.stem}"
)
def test_no_deployed_service_that_is_not_root_is_told_to_make_entries(path: Path) -> None:
    backend, _, rest = tomllib.loads(path.read_text()).get("evidence", "").partition(":")
    if backend == "configfs-tsm":
        folder, _, entry = rest.partition("#")
        shown = [mount for mount in _mounts() if mount.startswith(f"{ROOT}/")]
        assert {mount.split(":")[1] for mount in shown} == {f"{folder}/{entry}"}
        assert {int(user.partition(":")[0]) for user in _users()} == {USER}
        assert not [mount for mount in shown if mount.endswith(":ro")]


def _mounted() -> list[str]:
    """Names of the entries that the compose files show to their containers."""
    return [mount.split(":")[0].rpartition("/")[2] for mount in _mounts() if mount.startswith(f"{ROOT}/")]


def _mounts() -> list[str]:
    return [mount for service in _services() for mount in service.get("volumes", ())]


def _users() -> list[str]:
    return [service["user"] for service in _services() if any(ROOT in mount for mount in service.get("volumes", ()))]


def _services() -> list[dict[str, Any]]:
    files = [yaml.safe_load((COMPOSE / name).read_text()) for name in ("orchestrator.yml", "holder.yml")]
    return [service for file in files for service in file["services"].values()]
