"""Keys, IVs, sealed records and HPKE as docs/formats.md and the keys of docs/protocol.md word them. Must not know the product's code."""

from __future__ import annotations

import hashlib
import hmac
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey, MLKEM768PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tests.conformance.independent.page_signed import cbor

TAG = 16


def expand(key: bytes, info: bytes, length: int, digest: str = "sha256") -> bytes:
    """HKDF-Expand (RFC 5869 2.3)."""
    found, last = b"", b""
    while len(found) < length:
        last = hmac.digest(key, last + info + bytes([len(found) // hashlib.new(digest).digest_size + 1]), digest)
        found += last
    return found[:length]


def hkdf(key: bytes, info: bytes, length: int = 32, salt: bytes = bytes(32)) -> bytes:
    """HKDF-SHA256; an empty salt is as many zeros as the hash is long."""
    return expand(hmac.digest(salt, key, "sha256"), info, length)


# ------------------------------------------------------------ IVs


def _xor(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=True))


def narrow_iv(counter: int, channel: int, mask: bytes) -> bytes:
    return _xor(struct.pack("<IQ", counter, channel), mask)


def wide_iv(counter: int) -> bytes:
    return struct.pack("<Q4x", counter)


def spdm_iv(number: int, salt: bytes) -> bytes:
    return _xor(struct.pack("<Q4x", number), salt)


# ------------------------------------------------------------ keys


def slot(export_master: bytes, label: str) -> bytes:
    return expand(export_master[:32], label.encode(), 32)


def draw(root: bytes, epoch: int, ours: bytes, theirs: bytes) -> tuple[bytes, bytes]:
    """VS_e and RK'."""
    both = hkdf(root, cbor(["draw", epoch, ours, theirs]), 64)
    return both[:32], both[32:]


def visit_keys(vs: bytes, session: str, epoch: int, holder: str, region: int, one_time: bytes) -> tuple[bytes, bytes]:
    """K(e, h2d) and the IV mask; `one_time`: the raw HPKE key."""
    bound = [session, epoch, holder, "h2d", region, hashlib.sha256(one_time).digest()]
    return hkdf(vs, cbor(["visit", *bound])), hkdf(vs, cbor(["iv-mask", *bound]), 12)


def direct_key(key: bytes, agreed: bytes, bound: Sequence[object]) -> bytes:
    """The traffic key: `bound` is session, visit, holder, region, epoch, "h2d", the holder's share, the GPU's."""
    return hkdf(agreed, cbor(["gput/direct", *bound]), salt=key)


def stock_key(key: bytes, bound: Sequence[object], direction: str) -> bytes:
    """`bound`: session, visit, holder, epoch."""
    return hkdf(key, cbor(["gput/stock", *bound, direction]))


def spdm_expand(secret: bytes, label: str, context: bytes, length: int) -> bytes:
    return expand(secret, struct.pack("<H", length) + b"spdm1.1 " + label.encode() + context, length, "sha384")


# ------------------------------------------------------------ copy records


@dataclass(frozen=True)
class Visit:
    """All that a visit's records are sealed by. `bound`: session, visit, holder, region, epoch."""

    key: bytes
    mask: bytes
    channel: int
    bound: tuple[str, str, str, int, int]
    chains: int

    @property
    def context(self) -> bytes:
        return hashlib.sha256(cbor(["gput/copy", *self.bound, "h2d"])).digest()

    def chain(self, number: int) -> tuple[AESGCM, bytes]:
        """Cipher and mask of one chain."""
        if self.chains == 1:
            return AESGCM(self.key), self.mask
        own = hkdf(self.key, cbor(["gput/chain", self.chains, number, self.mask]), 44)
        return AESGCM(own[:32]), own[32:]

    def header(self, kind: int, index: int, total: int, length: int) -> bytes:
        *_, region, epoch = self.bound
        return struct.pack(
            "<4sBBHIIIII4x", b"GPTR", 1, kind, self.chains - 1, epoch, region, index, total, length
        )  # fmt: skip

    def _places(self, length: int) -> list[tuple[int, int]]:
        step = 16 * -(-length // (16 * self.chains))
        return [(min(j * step, length), min((j + 1) * step, length)) for j in range(self.chains)]

    def _aad(self, header: bytes, number: int) -> bytes:
        return header + self.context + (struct.pack("<HH", number, self.chains) if self.chains > 1 else b"")

    def seal(self, kind: int, index: int, total: int, plaintext: bytes) -> bytes:
        """One copy record."""
        header = self.header(kind, index, total, len(plaintext))
        found = header
        for number, (start, end) in enumerate(self._places(len(plaintext))):
            cipher, mask = self.chain(number)
            iv = narrow_iv(index + 1, self.channel, mask)
            found += cipher.encrypt(iv, plaintext[start:end], self._aad(header, number))
        return found

    def open(self, record: bytes) -> tuple[int, int, int, bytes]:
        """(kind, index, total, plaintext) of a record; cryptography's InvalidTag if it is none of this visit's."""
        header, rest, plaintext = record[:32], record[32:], b""
        _, _, kind, _, _, _, index, total, length = struct.unpack("<4sBBHIIIII4x", header)
        assert header == self.header(kind, index, total, length)
        for number, (start, end) in enumerate(self._places(length)):
            cipher, mask = self.chain(number)
            size, iv = end - start + TAG, narrow_iv(index + 1, self.channel, mask)
            plaintext += cipher.decrypt(iv, rest[:size], self._aad(header, number))
            rest = rest[size:]
        assert not rest
        return kind, index, total, plaintext


# ------------------------------------------------------------ frames, SPDM, at rest


def frame_aad(life: int, n: int, direction: str, bulk: Sequence[bytes]) -> bytes:
    return cbor(["gput/rpc", life, n, direction, [hashlib.sha256(record).digest() for record in bulk]])


def bulk_aad(life: int, n: int, index: int, total: int) -> bytes:
    return cbor(["gput/bulk", life, n, index, total])


def spdm_record(session: int, secret: bytes, number: int, message: bytes) -> bytes:
    """One record of a direction whose secret (48 bytes) this is."""
    key, salt = spdm_expand(secret, "key", b"", 32), spdm_expand(secret, "iv", b"", 12)
    head = struct.pack("<IH", session, 2 + len(message) + TAG)
    return head + AESGCM(key).encrypt(spdm_iv(number, salt), struct.pack("<H", len(message)) + message, head)


def sealed_under_name(key: bytes, name: str, plaintext: bytes, aad: bytes | None = None) -> bytes:
    return AESGCM(hkdf(key, cbor(["gput/at-rest", name]))).encrypt(bytes(12), plaintext, aad)


def sealed_file(key: bytes, name: str, salt: bytes, plaintext: bytes) -> bytes:
    """A long file, in pieces of 1 MiB."""
    cipher = AESGCM(hkdf(key, cbor(["gput/at-rest-stream", f"{name}/{salt.hex()}"])))
    pieces = [plaintext[at : at + 2**20] for at in range(0, len(plaintext), 2**20)] or [b""]
    last = len(pieces) - 1
    sealed = [cipher.encrypt(struct.pack(">QI", i, i == last), piece, None) for i, piece in enumerate(pieces)]
    return b"gput/sealed/1".ljust(16, b"\x00") + salt + b"".join(sealed)


def checkpoint_chunks(secret: bytes, name: str, step: int, noise: bytes, state: bytes) -> list[bytes]:
    """A whole checkpoint of a session whose checkpoint secret this is; `noise`: empty where training is not private."""
    key = hkdf(secret, cbor(["gput/checkpoint", name]))
    found = []
    for i, start in enumerate(range(0, len(state), 2**20)):
        plaintext = struct.pack("<Q", step) + noise + state[start : start + 2**20]
        aad = cbor(["gput/checkpoint", name, start, len(state)])
        found.append(sealed_under_name(key, f"{name}#{i}", plaintext, aad))
    return found


# ------------------------------------------------------------ HPKE

_SUITE = b"HPKE" + struct.pack(">HHH", 0x647A, 1, 2)


def _hpke_cipher(shared: bytes, info: bytes) -> tuple[AESGCM, bytes]:
    """RFC 9180 5.1, base mode: cipher and the one nonce."""

    def extract(salt: bytes, label: bytes, key: bytes) -> bytes:
        return hmac.digest(salt or bytes(32), b"HPKE-v1" + _SUITE + label + key, "sha256")

    def labelled_expand(key: bytes, label: bytes, context: bytes, length: int) -> bytes:
        return expand(key, struct.pack(">H", length) + b"HPKE-v1" + _SUITE + label + context, length)

    context = b"\x00" + extract(b"", b"psk_id_hash", b"") + extract(b"", b"info_hash", info)
    secret = extract(shared, b"secret", b"")
    return AESGCM(labelled_expand(secret, b"key", context, 32)), labelled_expand(secret, b"base_nonce", context, 12)


def _shared(mlkem: bytes, x25519: bytes, sent: bytes, public: bytes) -> bytes:
    return hashlib.sha3_256(mlkem + x25519 + sent + public + bytes.fromhex("5c2e2f2f5e5c")).digest()


@dataclass(frozen=True)
class HpkeKey:
    """A key pair of the hybrid KEM."""

    mlkem: MLKEM768PrivateKey
    x25519: X25519PrivateKey

    @property
    def public(self) -> bytes:
        return self.mlkem.public_key().public_bytes_raw() + self.x25519.public_key().public_bytes_raw()

    def open(self, sealed: bytes, info: bytes) -> bytes:
        sent = sealed[1088:1120]
        agreed = self.x25519.exchange(X25519PublicKey.from_public_bytes(sent))
        shared = _shared(self.mlkem.decapsulate(sealed[:1088]), agreed, sent, self.public[1184:])
        cipher, nonce = _hpke_cipher(shared, info)
        return cipher.decrypt(nonce, sealed[1120:], b"")


def hpke_seal(public: bytes, plaintext: bytes, info: bytes) -> bytes:
    own = X25519PrivateKey.generate()
    sent = own.public_key().public_bytes_raw()
    secret, encapsulated = MLKEM768PublicKey.from_public_bytes(public[:1184]).encapsulate()
    agreed = own.exchange(X25519PublicKey.from_public_bytes(public[1184:]))
    cipher, nonce = _hpke_cipher(_shared(secret, agreed, sent, public[1184:]), info)
    return encapsulated + sent + cipher.encrypt(nonce, plaintext, b"")
