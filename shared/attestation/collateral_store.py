"""Which collateral is used: what lies in a folder, what peers sent along, and of all of it the newest parts. Knows no quote and no network.

Every bundle's signatures are verified once and remembered by fingerprint; its times are judged at each use. Its parts are signed one by
one, so what is used may be put together from several bundles: the newest TCB info and QE identity, the newest list of each issuer. Thus
a peer that sends fresh parts with stale ones harms neither itself nor others, and cannot hide a revocation that this verifier knows of.

Roll-back: parts carry counters and dates. What was verified here is remembered per root and FMSPC (or per issuer), and older parts are
refused from the moment on that the newer ones were issued. The memory needs no protection of its own: nobody but the maker can sign a
higher number. A verifier without collateral of its own learns of news as its peers bring it, at the latest when theirs expires.
An evaluation number that a peer brought counts as long as its own part does: Intel publishes two at a time ("early" and "standard"), and
whoever brings the higher one once would shut out all who have the other when it ends.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path

from cryptography import x509

from shared.attestation.certificates import Window
from shared.attestation.collateral import RENEW, Collateral, VerifiedCollateral, verify_collateral
from shared.attestation.collateral_folder import read_folder, unusable
from shared.attestation.pck import PckIdentity, read_pck_chain
from shared.canonical import sha256
from shared.errors import VerificationFailed

MAX_REMEMBERED = 256
Counter = tuple[float, ...]


@dataclass(frozen=True, order=True)
class _Seen:
    """A part's counter: when it was issued, and until when nothing lower counts; seconds since 1970."""

    issued: float
    counter: Counter
    until: float


class CollateralStore:
    """Verified bundles and chains of one verifier, and what it remembers. Threads may share one."""

    def __init__(self, roots: Mapping[str, x509.Certificate]) -> None:
        self._roots, self._lock = roots, threading.RLock()
        self._verified: OrderedDict[tuple[str, str], VerifiedCollateral] = OrderedDict()
        self._pool: dict[tuple[str, str], VerifiedCollateral] = {}
        self._newest: dict[tuple[str, str], list[_Seen]] = {}
        self._chains: OrderedDict[bytes, PckIdentity] = OrderedDict()

    @classmethod
    def load(cls, folder: Path, roots: Mapping[str, x509.Certificate], *, archive: bool = False) -> CollateralStore:
        """Everything in the folder, verified; a folder that does not exist holds nothing.

        Args:
            archive: the folder was kept for others' evidence: what is under none of the roots is left out.

        Raises:
            ConfigurationError: `bad-collateral`, naming the file: unreadable, malformed, or (but in an archive) under none of the roots.
        """
        store = cls(roots)
        for path, source in read_folder(folder):
            try:
                store.learn(source)
            except VerificationFailed as error:
                if not archive:
                    raise unusable(path, error.detail) from None
        return store

    def learn(self, source: Collateral) -> VerifiedCollateral:
        """Verify a bundle of one's own under whichever pinned root it names, and keep it. Raises: VerificationFailed `collateral-…`."""
        failure: VerificationFailed | None = None
        for name, root in self._roots.items():
            try:
                verified = self._verify(source, root, name)
            except VerificationFailed as error:
                failure = failure if failure is not None and failure.code != "collateral-root" else error
            else:
                with self._lock:
                    self._pool[source.fingerprint, name] = verified
                    self._remember(verified, own=True)
                return verified
        raise failure or VerificationFailed("no CPU root is configured", code="collateral-root")

    def _verify(self, source: Collateral, root: x509.Certificate, name: str) -> VerifiedCollateral:
        key = (source.fingerprint, name)
        with self._lock:
            known = self._pool.get(key) or self._verified.get(key)
            if known is None:
                known = self._verified[key] = verify_collateral(source, root)
                if self._remember(known):
                    self._pool[key] = (
                        known  # a peer's is kept only for what is new in it: nobody can crowd out one's own
                    )
                while len(self._verified) > MAX_REMEMBERED:
                    self._verified.popitem(last=False)
            return known

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
        """The newest parts for this machine, those that count at `at` first. What a peer offered counts like one's own, also where newer is
        known: evidence is judged by the time that it was made at, and what was current then may be at hand nowhere else.

        Raises:
            VerificationFailed: `collateral-missing`; `collateral-…`: what was offered is not genuine, whatever else is at hand.
        """
        given = self._verify(offered, pck.root, pck.root_fingerprint) if offered is not None else None
        with self._lock:
            known = [c for c in self._pool.values() if c.root_fingerprint == pck.root_fingerprint]
        if given is not None and given not in known:
            known.append(given)
        about = [c for c in known if (c.tcb_info.fmspc.hex(), c.tcb_info.pce_id.hex()) == (pck.fmspc, pck.pce_id)]
        lists = [c for c in known if c.authority_name == pck.authority_name]
        if about and lists:
            return self._assembled(pck, known, about, lists, at)
        if given is not None or len(known) == 1:
            return given or known[0]  # for another machine, as the check that compares them will say in full
        raise _missing(pck, known)

    def _assembled(
        self,
        pck: PckIdentity,
        known: Sequence[VerifiedCollateral],
        about: Sequence[VerifiedCollateral],
        lists: Sequence[VerifiedCollateral],
        at: float,
    ) -> VerifiedCollateral:
        info = _newest(about, _tcb_info, at)
        identity, root_list, list_ = (
            _newest(known, _identity, at),
            _newest(known, _root_list, at),
            _newest(lists, _list, at),
        )
        if info is identity is root_list is list_:
            return info
        source = replace(
            info.source,
            qe_identity_issuer_chain=identity.source.qe_identity_issuer_chain,
            qe_identity=identity.source.qe_identity,
            qe_identity_signature=identity.source.qe_identity_signature,
            root_ca_crl=root_list.source.root_ca_crl,
            pck_crl_issuer_chain=list_.source.pck_crl_issuer_chain,
            pck_crl=list_.source.pck_crl,
        )
        return self._verify(source, pck.root, pck.root_fingerprint)

    def _remember(self, collateral: VerifiedCollateral, *, own: bool = False) -> bool:
        """Whether any of its parts is newer than all that was seen of its kind."""
        news = False
        for key, part in _counters(collateral):
            known = self._newest.setdefault(key, [])
            news = news or all((seen.counter, seen.issued) < (part.counter, part.issued) for seen in known)
            same = [seen for seen in known if (seen.issued, seen.counter) == (part.issued, part.counter)]
            until = max([inf if own else part.until, *(seen.until for seen in same)])
            known[:] = sorted([*(seen for seen in known if seen not in same), replace(part, until=until)])
            del known[:-MAX_REMEMBERED]
        return news

    def check_rollback(self, collateral: VerifiedCollateral, at: float) -> None:
        """Nothing newer was out at `at`, as far as this verifier has seen. Raises: VerificationFailed `collateral-rollback`."""
        for (root, what), part in _counters(collateral):
            with self._lock:
                known = self._newest.get((root, what), [])
                seen = [each.counter for each in known if each.issued <= at <= each.until]
            if part.counter < max(seen, default=part.counter):
                raise VerificationFailed(
                    f"the collateral's {what} is older than one seen before",
                    code="collateral-rollback",
                    expected=f"at least {_said(max(seen))}",
                    got=_said(part.counter),
                    remedy=RENEW,
                )


Part = Callable[[VerifiedCollateral], tuple[Window, Counter]]


def _tcb_info(collateral: VerifiedCollateral) -> tuple[Window, Counter]:
    info = collateral.tcb_info
    return info.window, (float(info.tcb_evaluation_data_number), info.issue_date)


def _identity(collateral: VerifiedCollateral) -> tuple[Window, Counter]:
    identity = collateral.qe_identity
    return identity.window, (float(identity.tcb_evaluation_data_number), identity.issue_date)


def _root_list(collateral: VerifiedCollateral) -> tuple[Window, Counter]:
    return collateral.root_crl.window, (float(collateral.root_crl.number), collateral.root_crl.window.start)


def _list(collateral: VerifiedCollateral) -> tuple[Window, Counter]:
    return collateral.pck_crl.window, (float(collateral.pck_crl.number), collateral.pck_crl.window.start)


def _newest(bundles: Sequence[VerifiedCollateral], part: Part, at: float) -> VerifiedCollateral:
    """The bundle whose part counts at `at`, and of those the newest one's."""

    def rank(bundle: VerifiedCollateral) -> tuple[bool, bool, Counter]:
        window, counter = part(bundle)
        return window.start <= at <= window.end, window.start <= at, counter

    return max(bundles, key=rank)


def _counters(collateral: VerifiedCollateral) -> Iterator[tuple[tuple[str, str], _Seen]]:
    """(root and part, what is seen of it). Lists count by number, then date: Intel's number never moves."""
    root, info = collateral.root_fingerprint, collateral.tcb_info
    for name, part in (
        (f"TCB info of {info.fmspc.hex()}", _tcb_info),
        ("QE identity", _identity),
    ):
        window, (evaluation, _date) = part(collateral)
        yield (root, name), _Seen(window.start, (evaluation,), window.end)
    for crl, part in ((collateral.root_crl, _root_list), (collateral.pck_crl, _list)):
        window, counter = part(collateral)
        yield (root, f"revocation list of {crl.issuer}"), _Seen(window.start, counter, inf)


def _said(counter: Counter) -> str:
    return ", ".join(f"{part:.0f}" for part in counter)


def _missing(pck: PckIdentity, known: Sequence[VerifiedCollateral]) -> VerificationFailed:
    kinds = sorted({collateral.tcb_info.fmspc.hex() for collateral in known})
    return VerificationFailed(
        "there is no TCB info, QE identity and revocation list to judge this machine by",
        code="collateral-missing",
        expected=f"collateral for FMSPC {pck.fmspc}",
        got=f"none sent along; in the trust folder: {', '.join(kinds) or 'none'}",
        remedy=RENEW,
    )
