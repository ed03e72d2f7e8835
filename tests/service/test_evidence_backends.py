"""The table of evidence backends: what a service must set for each, and the runtime register of a real TDX guest."""

from __future__ import annotations

import base64
import errno
from pathlib import Path
from typing import Any

import pytest

from shared.canonical import sha384
from shared.claims.event_log import Event, parse_log, replay
from shared.errors import ConfigurationError, Conflict, EmulationWarning, Unavailable
from shared.service.evidence import EmulatedProvider, open_provider
from shared.service.evidence.rtmr import RuntimeRegister
from shared.service.guest import Guest
from tests.service.test_configfs_tsm import DATA, guest, snp, tdx
from tests.service.tsm_kernel import failure

EMULATED = "emulated:http://127.0.0.1:9/cvms/orchestrator"


def sealing_key(folder: Path, content: bytes = b"k" * 32, mode: int = 0o600) -> Path:
    path = folder / "sealing.key"
    path.write_bytes(content)
    path.chmod(mode)
    return path


def refusal(uri: str, token: Path | None = None, key: Path | None = None) -> ConfigurationError:
    with pytest.raises(ConfigurationError) as caught:
        open_provider(uri, token_file=token, sealing_key_file=key)
    return caught.value


async def test_an_emulated_cvm_needs_its_token_and_no_sealing_key(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("s" * 32 + "\n")
    with pytest.warns(EmulationWarning):
        opened = open_provider(EMULATED, token_file=token, sealing_key_file=None)
    assert isinstance(opened, EmulatedProvider)
    await opened.aclose()
    assert refusal(EMULATED).code == "evidence-token"
    assert "/absent" in refusal(EMULATED, Path("/absent")).detail
    assert refusal(EMULATED, token, sealing_key(tmp_path)).remedy == "unset sealing_key_file"


def test_real_hardware_needs_a_sealing_key_and_no_token(tmp_path: Path) -> None:
    uri = f"configfs-tsm:{tmp_path}"
    assert "sealing_key_file" in (refusal(uri).remedy or "")
    assert (
        "configfs-tsm" in refusal(uri, key=sealing_key(tmp_path)).detail
    )  # the key is good, the folder is no kernel's
    token = tmp_path / "token"
    token.write_text("s" * 32)
    assert refusal(uri, token, sealing_key(tmp_path)).remedy == "unset evidence_token_file"


@pytest.mark.parametrize(
    ("content", "mode", "says"), [(b"k" * 31, 0o600, "31 bytes"), (b"k" * 32, 0o640, "open to other users")]
)
def test_a_bad_sealing_key_is_refused_and_never_shown(tmp_path: Path, content: bytes, mode: int, says: str) -> None:
    error = refusal(f"configfs-tsm:{tmp_path}", key=sealing_key(tmp_path, content, mode))
    assert says in error.detail
    assert "kkk" not in f"{error.detail}{error.remedy}{error.got}"
    assert "cannot be read" in refusal(f"configfs-tsm:{tmp_path}", key=tmp_path / "absent").detail


# --------------------------------------------------------- runtime register


class KernelFile:
    """`rtmr3:sha384` as the kernel makes it: a read gives the value, one write of 48 bytes extends it."""

    name = "rtmr3:sha384"

    def __init__(self, value: bytes = bytes(48)) -> None:
        self.value, self.error, self.intruder = value, 0, b""

    def __truediv__(self, name: str) -> KernelFile:
        assert name == self.name
        return self

    def exists(self) -> bool:
        return True

    def read_bytes(self) -> bytes:
        return self.value

    def open(self, mode: str, buffering: int = -1) -> Any:
        assert (mode, buffering) == ("r+b", 0)
        return _Writing(self)


class _Writing:
    def __init__(self, file: KernelFile) -> None:
        self._file = file

    def __enter__(self) -> _Writing:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def write(self, data: bytes) -> int:
        if self._file.error or len(data) != 48:
            raise failure(self._file.error or errno.EINVAL)
        if self._file.intruder:
            self._file.value = sha384(self._file.value + self._file.intruder)
        self._file.value = sha384(self._file.value + data)
        return len(data)


def real(file: KernelFile) -> RuntimeRegister:
    return RuntimeRegister(file)  # type: ignore[arg-type]  # a folder with one file in it


async def test_a_tdx_guest_extends_its_runtime_register_once() -> None:
    file, digest = KernelFile(b"\x07" * 48), b"\x01" * 48
    cvm = guest(tdx(), register=real(file))
    assert await cvm.registers() == {3: b"\x07" * 48}
    after = sha384(b"\x07" * 48 + digest)
    for _ in range(2):  # a repeat after an unheard answer changes nothing
        await cvm.extend(3, digest, b"\x07" * 48)
        assert file.value == after
    with pytest.raises(Conflict) as caught:
        await cvm.extend(3, b"\x02" * 48, b"\x07" * 48)
    assert caught.value.code == "register-moved"
    for register in (0, 1, 2):  # firmware's, kernel's and system's
        with pytest.raises(Conflict):
            await cvm.extend(register, digest, after)


async def test_an_intruder_in_the_register_and_a_kernel_that_refuses() -> None:
    file = KernelFile()
    file.intruder = b"\x09" * 48
    with pytest.raises(Conflict):
        real(file).extend(3, b"\x01" * 48, bytes(48))
    file = KernelFile()
    file.error = errno.EIO
    with pytest.raises(Unavailable):
        real(file).extend(3, b"\x01" * 48, bytes(48))
    with pytest.raises(Unavailable):
        real(KernelFile(b"short")).values()


async def test_machines_without_a_runtime_register_have_none(tmp_path: Path) -> None:
    older = guest(tdx(), register=RuntimeRegister(tmp_path))
    for cvm in (older, guest(snp())):
        assert await cvm.registers() == {}
        with pytest.raises(Conflict):
            await cvm.extend(3, b"\x01" * 48, bytes(48))


async def test_one_that_leads_again_after_another_of_its_machine_goes_on_from_what_that_one_left() -> None:
    """Two orchestrators in one TDX guest, which is the CVM of both: each extends the one register while it leads."""
    file, kernel = KernelFile(), tdx()
    boot = [Event(register=2, type="settings", content={"allow_emulated": False})]
    first, second = (Guest(guest(kernel, register=real(file)), boot) for _ in range(2))

    async def attested(leader: Guest, session: str) -> list[str]:
        log = parse_log(base64.b64decode((await leader.quote(DATA, about=session)).event_log))
        assert replay(log)[3] == file.value
        return [event.type for event in log.events]

    await first.record("session", {"session": "s_1"})
    assert await attested(first, "s_1") == ["settings", "session"]
    await first.begin_again()  # nobody else led: what was measured stands
    assert await attested(first, "s_1") == ["settings", "session"]
    await second.record("session", {"session": "s_2"})
    assert await attested(second, "s_2") == ["settings", "session"]
    await first.begin_again()
    await first.record("session", {"session": "s_3"})
    assert await attested(first, "s_3") == ["settings", "session"]
