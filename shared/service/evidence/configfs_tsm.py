"""Backend `configfs-tsm:[PATH][#ENTRY]`: evidence from the kernel of a real confidential VM, TDX or SEV-SNP. Knows no format but the table.

Linux 6.7 and newer, Documentation/ABI/testing/configfs-tsm-report. An entry is made per quote and removed after it, or it is one that is
named. The kernel counts every write to an entry in `generation`, and takes a write over at close without saying whether it did (a write
that it refuses as busy is lost): only the count tells that what was read answers what was written, so it is read before and after.
"""

from __future__ import annotations

import asyncio
import base64
import errno
import os
import re
import time
from collections.abc import Callable

from shared.canonical import cbor_bytes
from shared.crypto.derived_key import DERIVED_KEY_BYTES
from shared.crypto.schedule import hkdf
from shared.crypto.secret import Secret
from shared.errors import BadRequest, ConfigurationError, Conflict, Unavailable
from shared.service.evidence.registry import REPORT_DATA_BYTES, EvidenceProvider, GuestSecrets, register
from shared.service.evidence.rtmr import RuntimeRegister
from shared.service.evidence.tsm_entries import Entries, Files, GivenEntry, OwnEntries
from shared.wire.snp_certificates import parse_certificate_table
from shared.wire.visit import Evidence

DEFAULT_PATH = "/sys/kernel/config/tsm/report"
TDX, SNP = "tdx_guest", "sev_guest"
MAX_BLOB_BYTES = 64 * 1024  # the kernel's own limit is 32 KiB
MAX_LABEL = 120
ATTEMPTS = 5
FIRST_PAUSE_S = 0.05
# The host is slow or busy (GetQuote in flight, throttled firmware), or a signal came: trying again may help.
TRY_AGAIN = {errno.EBUSY, errno.EAGAIN, errno.EINTR, errno.ETIMEDOUT}
NO_KEY = {
    TDX: "a TDX guest cannot derive a sealing key: the TDX module has no such call",
    SNP: "SEV-SNP firmware derives keys through /dev/sev-guest (MSG_KEY_REQ), which this backend does not ask for",
}
_ENTRY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class _Raced(Exception):
    """Somebody else wrote into the entry, or our own write was lost: what was read answers another question."""


class ConfigfsTsmProvider:
    """The confidential VM that this process runs in.

    Args:
        path: folder of the kernel's report entries; "" for the usual one.
        entry: name of one that the machine's root made for this process; "" makes one for each quote, which only root can.
        sealing_key: 32 bytes released into this guest, from which `derived_key` derives; None: there are no sealing keys.
        files, register, pause: the kernel's side and the clock, for tests.

    Raises:
        ConfigurationError: `evidence-backend`: no configfs-tsm there, no provider loaded, no right to use it, or one unknown to us.
    """

    def __init__(
        self, path: str = "", sealing_key: Secret | None = None, *, entry: str = "", files: Files = os,
        register: RuntimeRegister | None = None, pause: Callable[[float], None] = time.sleep,
    ) -> None:  # fmt: skip
        self._path, self._sealing_key, self._files, self._pause = path or DEFAULT_PATH, sealing_key, files, pause
        self._entries: Entries = GivenEntry(self._path, entry) if entry else OwnEntries(self._path, files)
        self.kind = self._probe()
        self._register = (register or RuntimeRegister()) if self.kind == TDX else None

    async def quote(self, report_data: bytes) -> Evidence:
        """Evidence over 64 bytes: a TDX quote, or an SEV-SNP report with the host's certificate table.

        The kernel may wait seconds for the host, so it is asked on a thread.

        Raises:
            BadRequest: not 64 bytes. Unavailable: `evidence-busy`, `evidence-raced`, `evidence-unusable`.
        """
        if len(report_data) != REPORT_DATA_BYTES:
            raise BadRequest(f"report data has 64 bytes, got {len(report_data)}", code="bad-report-data")
        return await asyncio.to_thread(self._quote, report_data)

    async def registers(self) -> dict[int, bytes]:
        """The runtime register that the guest's code may extend, and its value; none on SEV-SNP and on kernels before 6.16."""
        return await asyncio.to_thread(self._register.values) if self._register is not None else {}

    async def relaunch(self) -> bool:
        """No: the machine is the CVM, and what it measured stays."""
        return False

    async def extend(self, register: int, digest: bytes, before: bytes) -> None:
        """Extend a register from the value `before`; the same again has no further effect. All 48 bytes.

        Raises:
            Conflict: the register has another value. Unavailable: the kernel does not take it.
        """
        if self._register is None:
            raise Conflict(f"this machine has no runtime register {register}", code="no-register")
        await asyncio.to_thread(self._register.extend, register, digest, before)

    async def derived_key(self, label: str) -> Secret:
        """HKDF(sealing key, CBOR["gput/derived-key", "sealing-key-file", label]), 32 bytes.

        Raises:
            BadRequest: a malformed label. ConfigurationError: `sealing-key`: this hardware derives none and none was released to it.
        """
        if not 1 <= len(label) <= MAX_LABEL:
            raise BadRequest(f"a label has 1 to {MAX_LABEL} characters", code="bad-label")
        if self._sealing_key is None:
            raise ConfigurationError(
                NO_KEY[self.kind],
                code="sealing-key",
                remedy="set sealing_key_file to a 32-byte secret that a key broker or vTPM releases to this measured guest",
            )
        info = cbor_bytes(["gput/derived-key", "sealing-key-file", label])
        return Secret(hkdf(self._sealing_key.reveal(), info, DERIVED_KEY_BYTES))

    async def aclose(self) -> None:
        """Nothing stays open between quotes."""

    # ------------------------------------------------------------------ the kernel

    def _probe(self) -> str:
        """Which provider is loaded, for only entries tell; and that a question may be asked, without asking one."""
        try:
            with self._entries.taken() as entry:
                kind = self._text(f"{entry}/provider")
                asked = ["inblob", "privlevel"] if kind == SNP and self._floor(entry) else ["inblob"]
                for attribute in asked:
                    self._files.close(self._files.open(f"{entry}/{attribute}", os.O_WRONLY))
        except OSError as error:
            raise self._entries.absent(error) from None
        if kind not in (TDX, SNP):
            raise ConfigurationError(
                f"the kernel's evidence provider is {kind!r}, whose evidence nobody here could verify",
                code="evidence-backend",
                expected=f"{TDX}, {SNP}",
                got=kind,
            )
        return kind

    def _quote(self, report_data: bytes) -> Evidence:
        pause, last = FIRST_PAUSE_S, ("raced", "another program wrote into the report entry each time")
        for attempt in range(ATTEMPTS):
            if attempt:
                self._pause(pause)
                pause *= 2
            try:
                with self._entries.taken() as entry:
                    return self._collect(entry, report_data)
            except _Raced:
                last = "raced", "another program wrote into the report entry each time"
            except OSError as error:
                if error.errno not in TRY_AGAIN:
                    raise _unusable(f"{error.strerror} (errno {error.errno})") from None
                last = "busy", f"the host did not answer: {error.strerror}"
        raise Unavailable(
            f"the kernel at {self._path} gave no evidence in {ATTEMPTS} attempts: {last[1]}",
            code=f"evidence-{last[0]}",
            remedy="Find out what else uses configfs-tsm in this guest." if last[0] == "raced" else "Try again later.",
        )

    def _collect(self, entry: str, report_data: bytes) -> Evidence:
        kind, before, writes = self._text(f"{entry}/provider"), self._number(f"{entry}/generation"), 1
        if kind != self.kind:
            raise _unusable(f"the provider is now {kind!r}, it was {self.kind} at start")
        if kind == SNP and (floor := self._floor(entry)):
            # Beneath an SVSM the guest runs at a VMPL above 0 and may not ask for the entry's default of 0.
            self._write(f"{entry}/privlevel", str(floor).encode())
            writes += 1
        self._write(f"{entry}/inblob", report_data)
        report = self._blob(f"{entry}/outblob")
        table = self._blob(f"{entry}/auxblob") if kind == SNP else b""
        if self._number(f"{entry}/generation") != before + writes or report_data not in report:
            raise _Raced
        if kind == TDX:
            return Evidence(kind="tdx-quote", quote=_b64(report))
        try:
            parse_certificate_table(table)
        except BadRequest as error:
            raise _unusable(f"the host's {error.detail}") from None
        return Evidence(kind="snp-report", quote=_b64(report), endorsements=_b64(table))

    def _write(self, path: str, data: bytes) -> None:
        fd = self._files.open(path, os.O_WRONLY)
        try:
            if self._files.write(fd, data) != len(data):
                raise _unusable("the kernel took a part of what was written")
        finally:
            self._files.close(fd)

    def _blob(self, path: str) -> bytes:
        fd, parts, size = self._files.open(path, os.O_RDONLY), [], 0
        try:
            while part := self._files.read(fd, MAX_BLOB_BYTES):
                parts.append(part)
                size += len(part)
                if size > MAX_BLOB_BYTES:
                    raise _unusable(f"more than {MAX_BLOB_BYTES} bytes of evidence")
        finally:
            self._files.close(fd)
        return b"".join(parts)

    def _text(self, path: str) -> str:
        return self._blob(path).decode("ascii", "replace").strip()

    def _floor(self, entry: str) -> int:
        """The least privilege level that the guest may ask for; above 0 beneath an SVSM."""
        return self._number(f"{entry}/privlevel_floor")

    def _number(self, path: str) -> int:
        text = self._text(path)
        if not text.isdecimal():
            raise _unusable(f"{path.rpartition('/')[2]} reads {text[:20]!r}")
        return int(text)


def _unusable(why: str) -> Unavailable:
    return Unavailable(f"the kernel's evidence is of no use: {why}", code="evidence-unusable")


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _make(rest: str, given: GuestSecrets) -> EvidenceProvider:
    if given.token:
        raise ConfigurationError(
            "evidence_token_file is set, but a real confidential VM has no token",
            code="evidence-token",
            remedy="unset evidence_token_file",
        )
    path, named, entry = rest.partition("#")
    if named and not _ENTRY.fullmatch(entry):
        raise ConfigurationError(
            "the part after # in the setting evidence is no name of a report entry",
            code="evidence-backend",
            expected="configfs-tsm:#NAME or configfs-tsm:PATH#NAME; a NAME has letters, digits, dashes, dots",
            remedy="name the entry that the machine's root made for this service, or leave out the # to make one for each quote",
        )
    return ConfigfsTsmProvider(path, given.sealing_key, entry=entry)


register("configfs-tsm", _make, derives_keys=False)
