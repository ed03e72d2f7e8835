"""The sites of one production deployment, laid out as deploy/compose/README.md says: a folder per party. Knows files, and no engine.

Two things differ from a real one: evidence is emulated, so the settings name the emulation in place of configfs-tsm, and the certificate
authority is the test's own.
"""

from __future__ import annotations

import csv
import random
import re
import secrets
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from gput.local.demos.texts import HOLDERS

COMPOSE = Path(__file__).parents[2] / "deploy" / "compose"
OVERRIDES = Path(__file__).parent / "overrides"
NAMES = ("a.orchestrator.example", "b.orchestrator.example")
PORT = 8443
PARTS = ("platform", "agent", "orchestrator", *(f"holder-{name}" for name in HOLDERS), "client")
"""Volumes that `gput.local.compose prepare` fills."""


class Site:
    """One folder: `emulated/` is what the makers of hardware hand out, the rest what each operator lays beside its file."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.emulated = folder, folder / "emulated"
        self.authority = folder / "authority.pem"

    def begin(self) -> None:
        """Empty folders for the makers to fill."""
        for part in PARTS:
            (self.emulated / part).mkdir(parents=True)
        (self.folder / "installation").mkdir()

    def orchestrator(self) -> Path:
        """The orchestrator's site. Returns its folder."""
        site = self._copied("orchestrator", ("orchestrator.yml", "orchestrator.toml", "nginx.conf"))
        given = self.emulated / "orchestrator"
        self._given(site, given, "owners")
        (site / "secrets" / "database-password").write_text(f"{secrets.token_urlsafe(24)}\n")
        self._certificates(site / "secrets")
        _edit(site / "orchestrator.toml", {
            "evidence": '"emulated:http://platform:8000/cvms/orchestrator"\nallow_emulated = true\n'
                        'evidence_token_file = "/etc/gput/cvms/orchestrator.token"',
            "sealing_key_file": None, "agent_url": '"http://agent:8000"', "platform_url": '"http://platform:8000"',
        })  # fmt: skip
        return site

    def holder(self, name: str) -> Path:
        """One holder's site, with patients of its own kind. Returns its folder."""
        site = self._copied(f"holder-{name}", ("holder.yml", "holder.toml"))
        given = self.emulated / f"holder-{name}"
        self._given(site, given)
        (site / "operators").mkdir()
        (site / "policy.toml").touch()
        shutil.copy2(self.authority, site / "authority.pem")
        shutil.copy2(given / "recovery.key", site / "secrets" / "recovery.key")
        _edit(site / "holder.toml", {
            "name": f'"{name}"', "orchestrator_url": f'"{",".join(f"https://{name}:{PORT}" for name in NAMES)}"',
            "evidence": f'"emulated:http://platform:8000/cvms/holder-{name}"\nallow_emulated = true\n'
                        f'evidence_token_file = "/etc/gput/cvms/holder-{name}.token"',
            "sealing_key_file": None, "records": '"/data/patients.csv"',
        })  # fmt: skip
        _patients(site / "data" / "patients.csv", name)
        return site

    def _copied(self, name: str, files: tuple[str, ...]) -> Path:
        site = self.folder / name
        for part in ("secrets", "data"):
            (site / part).mkdir(parents=True)
        for file in files:
            shutil.copy2(COMPOSE / file, site / file)
        shutil.copy2(OVERRIDES / files[0], site / "emulated.yml")
        return site

    def _given(self, site: Path, given: Path, *more: str) -> None:
        for part in ("trust", "cvms", *more):
            shutil.copytree(given / part, site / part)

    def _certificates(self, folder: Path) -> None:
        """A certificate authority, and one certificate for both names of the orchestrators."""
        own, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
        issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test authority")])
        authority = (
            _certificate(issuer, issuer, own)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .sign(own, hashes.SHA256())
        )
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, NAMES[0])])
        leaf = (
            _certificate(subject, issuer, key)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(name) for name in NAMES]), critical=False)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .sign(own, hashes.SHA256())
        )
        self.authority.write_bytes(authority.public_bytes(serialization.Encoding.PEM))
        (folder / "tls-certificate.pem").write_bytes(leaf.public_bytes(serialization.Encoding.PEM))
        pem, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
        (folder / "tls-key.pem").write_bytes(key.private_bytes(pem, form, serialization.NoEncryption()))


def _certificate(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
    )


def _edit(path: Path, values: dict[str, str | None]) -> None:
    """Put values in place of those in a settings file; None removes the line. Raises: KeyError: the file has no such line."""
    text = path.read_text()
    for name, value in values.items():
        line = "" if value is None else f"{name} = {value}\n"
        text, found = re.subn(rf"^{name} = .*\n", lambda _, line=line: line, text, flags=re.MULTILINE)
        if found != 1:
            raise KeyError(f"{path.name} has {found} lines of {name}")
    path.write_text(text)


def _patients(path: Path, name: str) -> None:
    """Records of one hospital; numbers are made up, from its name."""
    draw = random.Random(name)
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["age", "pressure", "marker", "label"])
        for _ in range(240):
            age, pressure, marker = draw.uniform(-1, 1), draw.gauss(0, 1), draw.gauss(0, 1)
            rows.writerow([f"{age:.4f}", f"{pressure:.4f}", f"{marker:.4f}", int(marker + 0.5 * pressure > 2 * age)])
