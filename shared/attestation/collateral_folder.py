"""Collateral in a folder: bundles and a service's answers read strictly, a bundle written whole. Knows no root and no signature.

NAME.json     a bundle of nine members
NAME.earlier-…json     one that it took the place of: evidence is judged by the time that it was made at
NAME/         answers as they arrived: tcb_info_*.json and its chain, qe_identity.json and its chain, pck_crl_platform.crl (or
              …_processor) and its chain, root_ca.crl
"""

from __future__ import annotations

import glob
from collections.abc import Iterator
from pathlib import Path

from shared.attestation.collateral import MAX_BUNDLE_BYTES, Collateral
from shared.canonical import sha256
from shared.crypto.private_file import replace_public
from shared.errors import ConfigurationError, GputError
from shared.wire.collateral import Authority, CollateralAnswers

MAX_FILES = 1024
MAX_EARLIER = 36
"""Bundles kept of those that stood under one name. They are renewed about once a month."""
_AUTHORITIES: tuple[Authority, ...] = ("platform", "processor")


def read_folder(folder: Path) -> Iterator[tuple[Path, Collateral]]:
    """Every bundle in it; one that does not exist holds nothing. Raises: ConfigurationError `bad-collateral`, naming the file."""
    if not folder.is_dir():
        return
    paths = sorted(folder.iterdir())
    if len(paths) > MAX_FILES:
        raise unusable(folder, f"it holds more than {MAX_FILES} files")
    for path in paths:
        try:
            if path.is_dir():
                yield from ((path, source) for source in read_answers(path))
            elif path.suffix == ".json":
                yield path, Collateral.parse(_read(path))
        except GputError as error:
            raise unusable(path, error.detail) from None


def read_answers(folder: Path) -> Iterator[Collateral]:
    """Bundles from a folder of answers as they arrived: one per TCB info and certificate authority.

    Raises:
        ConfigurationError: a file is missing or unreadable. BadRequest: `malformed-collateral`.
    """
    parts = {name: folder / name for name in ("qe_identity.json", "qe_identity_chain.txt", "root_ca.crl")}
    for info in sorted(folder.glob("tcb_info_*.json")):
        for authority in _AUTHORITIES:
            crl = folder / f"pck_crl_{authority}.crl"
            if crl.exists():
                answers = CollateralAnswers(
                    tcb_info=_read(info),
                    tcb_chain=_text(info.with_name(f"{info.stem}_chain.txt")),
                    qe_identity=_read(parts["qe_identity.json"]),
                    qe_chain=_text(parts["qe_identity_chain.txt"]),
                    pck_crl=_read(crl),
                    pck_crl_chain=_text(crl.with_name(f"{crl.stem}_chain.txt")),
                    root_ca_crl=_read(parts["root_ca.crl"]),
                )
                yield Collateral.from_answers(answers)


def write_bundle(folder: Path, name: str, source: Collateral) -> None:
    """Put a bundle into the folder as NAME.json, whole or not at all, and keep the one that was there: a service does not start with half
    of one, and at no moment is there none. Raises: ConfigurationError `bad-collateral`."""
    path, document = folder / f"{name}.json", source.document()
    try:
        if path.exists() and (before := path.read_bytes()) != document:
            replace_public(folder / f"{name}.earlier-{sha256(before).hex()[:16]}.json", before)
        replace_public(path, document)
        earlier = sorted(folder.glob(f"{glob.escape(name)}.earlier-*.json"), key=lambda kept: kept.stat().st_mtime)
        for forgotten in earlier[:-MAX_EARLIER]:
            forgotten.unlink()
    except OSError as error:
        raise unusable(folder, f"it cannot be written: {error.strerror}") from None


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(MAX_BUNDLE_BYTES + 1)
    except OSError as error:
        raise unusable(path, f"it cannot be read: {error.strerror}") from None


def _text(path: Path) -> str:
    return _read(path).decode("latin-1")


def unusable(path: Path, why: str) -> ConfigurationError:
    """The refusal of one file."""
    return ConfigurationError(
        f"the collateral {path} cannot be used: {why}", code="bad-collateral", remedy="remove or replace that file"
    )
