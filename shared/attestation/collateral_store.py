"""Which collateral is used: a folder read at start, what peers sent along, the memory of the newest seen. Knows no quote, no network.

    trust/collateral/NAME.json     a bundle of nine members
    trust/collateral/NAME/         a collateral service's answers: tcb_info_*.json and its chain, qe_identity.json and its chain,
                                   pck_crl_platform.crl (or …_processor) and its chain, root_ca.crl

Nothing is fetched here (see `collateral_refresh`). Every bundle's signatures are verified once and remembered by fingerprint; its times
are judged at each use.

Roll-back: signed parts carry counters and dates. Whatever was verified here is remembered per root and FMSPC (or per issuer), and older
parts are refused from the moment on that the newer ones were issued. The memory needs no protection of its own: nobody but the maker
can sign a higher number, and what is lost with the disk are only bundles that the next peer or fetch brings again.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from pathlib import Path

from cryptography import x509

from shared.attestation.collateral import MAX_BUNDLE_BYTES, RENEW, Collateral, VerifiedCollateral, verify_collateral
from shared.attestation.pck import PckIdentity, read_pck_chain
from shared.canonical import sha256
from shared.errors import ConfigurationError, GputError, VerificationFailed
from shared.wire.collateral import Authority, CollateralAnswers

Counter = tuple[float, ...]
MAX_FILES = 1024
MAX_REMEMBERED = 256
_AUTHORITIES: tuple[Authority, ...] = ("platform", "processor")


class CollateralStore:
    """Verified bundles and chains of one verifier, and what it remembers. Threads may share one."""

    def __init__(self, roots: Mapping[str, x509.Certificate], folder: Path | None = None) -> None:
        self._roots, self._folder, self._lock = roots, folder, threading.RLock()
        self._verified: OrderedDict[tuple[str, str], VerifiedCollateral] = OrderedDict()
        self._newest: dict[tuple[str, str], list[tuple[float, Counter]]] = {}
        self._chains: OrderedDict[bytes, PckIdentity] = OrderedDict()

    @classmethod
    def load(cls, folder: Path, roots: Mapping[str, x509.Certificate]) -> CollateralStore:
        """Everything in the folder, verified; a folder that does not exist holds nothing.

        Raises:
            ConfigurationError: `bad-collateral`, naming the file: unreadable, malformed, or under none of the roots.
        """
        store = cls(roots, folder)
        store.reload()
        return store

    def reload(self) -> None:
        """Read the folder again, for instance after somebody renewed it. Raises: ConfigurationError `bad-collateral`."""
        for path, source in _bundles(self._folder):
            try:
                self.learn(source)
            except GputError as error:
                raise _unusable(path, error.detail) from None

    def learn(self, source: Collateral) -> VerifiedCollateral:
        """Verify a bundle under whichever pinned root it names, and remember it. Raises: VerificationFailed `collateral-…`."""
        failure: VerificationFailed | None = None
        for name, root in self._roots.items():
            try:
                return self._verify(source, name, root)
            except VerificationFailed as error:
                failure = failure if failure is not None and failure.code != "collateral-root" else error
        raise failure or VerificationFailed("no CPU root is configured", code="collateral-root")

    def _verify(self, source: Collateral, name: str, root: x509.Certificate) -> VerifiedCollateral:
        key = (source.fingerprint, name)
        with self._lock:
            if key not in self._verified:
                self._verified[key] = verify_collateral(source, root)
                self._remember(self._verified[key])
            self._verified.move_to_end(key)
            while len(self._verified) > MAX_REMEMBERED:
                self._verified.popitem(last=False)
            return self._verified[key]

    def identify(self, chain: bytes, roots: Mapping[str, x509.Certificate]) -> PckIdentity:
        """`read_pck_chain`, remembered: a machine's chain is the same in each of its quotes. Time and revocation are judged apart."""
        key = sha256(chain)
        with self._lock:
            known = self._chains.get(key)
        if known is not None and roots.get(known.root_fingerprint) == known.root:
            return known
        identity = read_pck_chain(chain, roots)
        with self._lock:
            self._chains[key] = identity
            while len(self._chains) > MAX_REMEMBERED:
                self._chains.popitem(last=False)
        return identity

    def choose(self, pck: PckIdentity, offered: Collateral | None, at: float) -> VerifiedCollateral:
        """The best bundle for this machine: current before expired, then the newest. What a peer offered counts like one's own.

        Raises:
            VerificationFailed: `collateral-missing`; or why the offered bundle cannot be used, when there is no other.
        """
        failure, given = None, None
        if offered is not None:
            try:
                given = self._verify(offered, pck.root_fingerprint, pck.root)
            except VerificationFailed as error:
                failure = error
        with self._lock:
            known = [c for c in self._verified.values() if c.root_fingerprint == pck.root_fingerprint]
        fitting = [c for c in known if _fits(c, pck)]
        if fitting:
            return max(fitting, key=lambda c: (c.current(at), c.issued <= at, c.evaluation, c.issued))
        if given is not None or (len(known) == 1 and failure is None):
            return given or known[0]  # for another machine, as the check that compares them will say in full
        raise failure or _missing(pck, known)

    def _remember(self, collateral: VerifiedCollateral) -> None:
        for key, issued, counter in _counters(collateral):
            known = self._newest.setdefault(key, [])
            if all(seen < counter for when, seen in known if when <= issued):
                known[:] = [(when, seen) for when, seen in known if when < issued or seen > counter]
                known.append((issued, counter))

    def check_rollback(self, collateral: VerifiedCollateral, at: float) -> None:
        """Nothing newer was out at `at`, as far as this verifier has seen. Raises: VerificationFailed `collateral-rollback`."""
        for (root, what), _, counter in _counters(collateral):
            with self._lock:
                seen = [seen for when, seen in self._newest.get((root, what), []) if when <= at]
            if counter < max(seen, default=counter):
                raise VerificationFailed(
                    f"the collateral's {what} is older than one seen before",
                    code="collateral-rollback",
                    expected=f"at least {_said(max(seen))}",
                    got=_said(counter),
                    remedy=RENEW,
                )


def _counters(collateral: VerifiedCollateral) -> Iterator[tuple[tuple[str, str], float, Counter]]:
    """(root and part, when issued, counter). Lists count by number, then date: Intel's number never moves."""
    root, info, identity = collateral.root_fingerprint, collateral.tcb_info, collateral.qe_identity
    yield (root, f"TCB info of {info.fmspc.hex()}"), info.issue_date, (float(info.tcb_evaluation_data_number),)
    yield (root, "QE identity"), identity.issue_date, (float(identity.tcb_evaluation_data_number),)
    for crl in (collateral.root_crl, collateral.pck_crl):
        yield (root, f"revocation list of {crl.issuer}"), crl.window.start, (float(crl.number), crl.window.start)


def _said(counter: Counter) -> str:
    return ", ".join(f"{part:.0f}" for part in counter)


def _fits(collateral: VerifiedCollateral, pck: PckIdentity) -> bool:
    if collateral.root_fingerprint != pck.root_fingerprint:
        return False
    try:
        collateral.check_platform(pck)
    except VerificationFailed:
        return False
    return True


def _missing(pck: PckIdentity, known: list[VerifiedCollateral]) -> VerificationFailed:
    kinds = sorted({collateral.tcb_info.fmspc.hex() for collateral in known})
    return VerificationFailed(
        "there is no TCB info, QE identity and revocation list to judge this machine by",
        code="collateral-missing",
        expected=f"collateral for FMSPC {pck.fmspc}",
        got=f"none sent along; in the trust folder: {', '.join(kinds) or 'none'}",
        remedy=RENEW,
    )


def _bundles(folder: Path | None) -> Iterator[tuple[Path, Collateral]]:
    if folder is None or not folder.is_dir():
        return
    paths = sorted(folder.iterdir())
    if len(paths) > MAX_FILES:
        raise _unusable(folder, f"it holds more than {MAX_FILES} files")
    for path in paths:
        try:
            if path.is_dir():
                yield from ((path, source) for source in read_answers(path))
            elif path.suffix == ".json":
                yield path, Collateral.parse(_read(path))
        except GputError as error:
            raise _unusable(path, error.detail) from None


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
    """Put a bundle into the folder as NAME.json, whole or not at all. Raises: ConfigurationError `bad-collateral`."""
    draft = folder / f".{name}.{os.getpid()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        draft.write_bytes(source.document())
        os.replace(draft, folder / f"{name}.json")
    except OSError as error:
        raise _unusable(folder, f"it cannot be written: {error.strerror}") from None


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(MAX_BUNDLE_BYTES + 1)
    except OSError as error:
        raise _unusable(path, f"it cannot be read: {error.strerror}") from None


def _text(path: Path) -> str:
    return _read(path).decode("latin-1")


def _unusable(path: Path, why: str) -> ConfigurationError:
    return ConfigurationError(
        f"the collateral {path} cannot be used: {why}", code="bad-collateral", remedy="remove or replace that file"
    )
