"""AES-256-GCM channels whose counter lives with the key: no caller passes an IV. Knows no message and no peer.

IV rules (reference h100.md 4.3, NVIDIA's ccsl): 96-bit IV = message counter (LE u32) ‖ channel counter (LE u64), XOR the IV
mask; the counter is incremented *before* use, never sent, never reused, and its overflow is fatal. GSP contexts (`wide`) use a
64-bit message counter and no mask. A key carries a use budget in GCM units (16-byte blocks + invocations; h100.md 4.4).
"""

from __future__ import annotations

from typing import Final, NoReturn

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from shared.canonical import cbor_bytes
from shared.crypto.schedule import hkdf
from shared.crypto.secret import Secret
from shared.errors import ProtocolViolation, VerificationFailed

Buffer = bytes | bytearray | memoryview
KEY_BYTES: Final = 32
IV_BYTES: Final = 12
TAG_BYTES: Final = 16
NO_MASK: Final = bytes(IV_BYTES)
# Attacker advantage 2^-60 after draft-irtf-cfrg-aead-limits: NVIDIA's default upper threshold, about 362 GiB.
DEFAULT_BUDGET: Final = 24_296_003_999


class _Channel:
    """Key, label, counters and budget of one direction."""

    def __init__(
        self,
        key: Secret | bytes,
        *,
        label: str,
        iv_mask: bytes = NO_MASK,
        channel_counter: int = 0,
        wide: bool = False,
        budget: int = DEFAULT_BUDGET,
    ) -> None:
        raw = key.reveal() if isinstance(key, Secret) else key
        if len(raw) != KEY_BYTES or len(iv_mask) != IV_BYTES or (wide and (channel_counter or iv_mask != NO_MASK)):
            raise ProtocolViolation(f"{label}: wrong key, mask or counter form", code="bad-channel-key")
        if not 0 <= channel_counter < 2**64:
            raise ProtocolViolation(f"{label}: channel counter exhausted", code="counter-exhausted")
        if not any(raw):
            raise ProtocolViolation(f"{label}: an all-zero key is refused", code="bad-channel-key")
        self.label = label
        self.counter = 0
        self.used = 0
        self._cipher: AESGCM | None = AESGCM(raw)
        self._mask = int.from_bytes(iv_mask, "little")
        self._high = channel_counter << 32
        self._last = 2**64 - 1 if wide else 2**32 - 1
        self._budget = budget

    def erase(self) -> None:
        """Forget the key; any later use raises."""
        self._cipher = None

    def _live(self) -> AESGCM:
        if self._cipher is None:
            raise ProtocolViolation(f"{self.label}: the key was erased", code="key-erased")
        return self._cipher

    def _next(self, size: int) -> int:
        """The counter for the next message of `size` plaintext bytes; not yet taken."""
        # The whole counter is compared, not a low word: NVIDIA's 64-bit branch cannot fire (h100.md 4.3).
        if self.counter >= self._last:
            raise ProtocolViolation(f"{self.label}: message counter exhausted", code="counter-exhausted")
        if self.used + self._cost(size) > self._budget:
            raise ProtocolViolation(f"{self.label}: key budget exhausted", code="key-budget-exhausted")
        return self.counter + 1

    def _take(self, counter: int, size: int) -> None:
        self.counter = counter
        self.used += self._cost(size)

    def _iv(self, counter: int) -> bytes:
        return ((counter | self._high) ^ self._mask).to_bytes(IV_BYTES, "little")

    @staticmethod
    def _cost(size: int) -> int:
        return -(-size // 16) + 1

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.label!r}, counter={self.counter})"

    def __reduce__(self) -> NoReturn:
        # Two channels with one key and one counter would use an IV twice.
        raise TypeError("a channel is neither copied nor pickled")


class SealingChannel(_Channel):
    """The sender's end. The counter is taken before the cipher runs, so that no failure can lead to a second use."""

    def seal(self, plaintext: Buffer, aad: bytes) -> bytes:
        """Ciphertext ‖ tag (16). Raises: ProtocolViolation `counter-exhausted`, `key-budget-exhausted`, `key-erased`."""
        view = memoryview(plaintext)
        cipher, counter = self._live(), self._next(view.nbytes)
        self._take(counter, view.nbytes)
        return cipher.encrypt(self._iv(counter), plaintext, aad)

    def seal_into(self, plaintext: Buffer, aad: bytes, out: Buffer) -> int:
        """As `seal`, into `out` (plaintext length + 16 bytes) without a copy; returns the bytes written."""
        view = memoryview(plaintext)
        cipher, counter = self._live(), self._next(view.nbytes)
        self._take(counter, view.nbytes)
        return cipher.encrypt_into(self._iv(counter), plaintext, aad, out)


class OpeningChannel(_Channel):
    """The receiver's end: expects exactly the next counter, so reordered, dropped or replayed records fail."""

    def open(self, ciphertext: Buffer, aad: bytes) -> bytes:
        """Plaintext. Raises: VerificationFailed `tag-mismatch` (the counter stays), ProtocolViolation as `seal`."""
        size = memoryview(ciphertext).nbytes - TAG_BYTES
        cipher, counter = self._live(), self._next(max(size, 0))
        try:
            plaintext = cipher.decrypt(self._iv(counter), ciphertext, aad)
        except InvalidTag:
            raise self._mismatch() from None
        self._take(counter, size)
        return plaintext

    def open_into(self, ciphertext: Buffer, aad: bytes, out: Buffer) -> int:
        """As `open`, into `out` (ciphertext length − 16 bytes). After a failure `out` may hold anything: scrub it."""
        size = memoryview(ciphertext).nbytes - TAG_BYTES
        cipher, counter = self._live(), self._next(max(size, 0))
        try:
            written = cipher.decrypt_into(self._iv(counter), ciphertext, aad, out)
        except InvalidTag:
            raise self._mismatch() from None
        self._take(counter, size)
        return written

    def check_repeat(self, counter: int, ciphertext: Buffer, aad: bytes) -> None:
        """Whether a record at a used counter is the authentic one again; changes nothing. Raises: VerificationFailed.

        One key, IV and tag admit one ciphertext (short of a forgery), so an equal tag that verifies means equal bytes. The plaintext is
        nobody's: it goes where it is zeroed at once, verified or not, so that none stays in this process's freed memory (law L7).
        """
        if not 0 < counter <= self.counter:
            raise VerificationFailed(f"{self.label}: counter {counter} was never used", code="tag-mismatch")
        size = max(0, memoryview(ciphertext).nbytes - TAG_BYTES)
        scratch = bytearray(size)
        try:
            self._live().decrypt_into(self._iv(counter), ciphertext, aad, scratch)
        except InvalidTag:
            raise self._mismatch() from None
        finally:
            scratch[:] = bytes(size)  # in place: it keeps its length

    def _mismatch(self) -> VerificationFailed:
        return VerificationFailed(f"{self.label}: a record does not authenticate", code="tag-mismatch")


def at_rest_seal(key: Secret, name: str, plaintext: bytes, aad: bytes = b"") -> bytes:
    """Seal for storage. A key of its own is derived per `name`, used for one message only, hence the fixed IV.

    The caller never seals two different plaintexts under one name.
    """
    return _at_rest(key, name).encrypt(NO_MASK, plaintext, aad)


def at_rest_open(key: Secret, name: str, sealed: bytes, aad: bytes = b"") -> bytes:
    """Inverse of `at_rest_seal`. Raises: VerificationFailed `tag-mismatch`."""
    try:
        return _at_rest(key, name).decrypt(NO_MASK, sealed, aad)
    except InvalidTag:
        raise VerificationFailed(f"sealed {name!r} does not authenticate", code="tag-mismatch") from None


def _at_rest(key: Secret, name: str) -> AESGCM:
    return AESGCM(hkdf(key.reveal(), cbor_bytes(["gput/at-rest", name]), KEY_BYTES))


class AtRestStream:
    """Seals one long message for storage in pieces that open one by one, in any order. Nonces are those of STREAM (Hoang, Reyhanitabar,
    Rogaway, Vizár 2015): the piece's number, and whether it is the last one; so none can be left out, moved, or taken for the end.

    Args:
        name: of this message; a key of its own is derived for it, so the caller never seals two messages under one name.
    """

    def __init__(self, key: Secret, name: str) -> None:
        self._cipher = AESGCM(hkdf(key.reveal(), cbor_bytes(["gput/at-rest-stream", name]), KEY_BYTES))
        self._name = name

    def seal(self, number: int, piece: Buffer, *, last: bool) -> bytes:
        """Piece `number`, from 0, and its tag (TAG_BYTES)."""
        return self._cipher.encrypt(_stream_nonce(number, last), piece, None)

    def open(self, number: int, sealed: Buffer, *, last: bool) -> bytes:
        """Inverse of `seal`. Raises: VerificationFailed `tag-mismatch`."""
        try:
            return self._cipher.decrypt(_stream_nonce(number, last), sealed, None)
        except InvalidTag:
            raise VerificationFailed(
                f"piece {number} of sealed {self._name!r} does not authenticate", code="tag-mismatch"
            ) from None


def _stream_nonce(number: int, last: bool) -> bytes:
    return number.to_bytes(8, "big") + int(last).to_bytes(4, "big")
