"""Noise of private training, computed a second time with nothing but hashes and NumPy: a repeated visit must draw it after any upgrade."""

from __future__ import annotations

import hashlib
import hmac
from typing import Any

import cbor2
import numpy as np
import pytest
from blake3 import blake3

from gpu_agent.workload.private import standard_normal
from shared.crypto.schedule import Computation, noise_key

SECRET = bytes(range(32))
CURSOR: dict[str, Any] = {"start": 24, "count": 24, "order": "shuffled", "seed": 7}
ONE = Computation("north", ("d0" * 32, 40), CURSOR, "aa" * 32, "bb" * 32, 3, 6)


def test_the_key_is_hkdf_over_all_that_the_result_depends_on() -> None:
    what = ["north", ["d0" * 32, 40], CURSOR, "aa" * 32, "bb" * 32, 3, 6]
    info = cbor2.dumps(["gput/noise-key", what], canonical=True)
    extracted = hmac.digest(bytes(32), SECRET, hashlib.sha256)
    assert noise_key(SECRET, ONE) == hmac.digest(extracted, info + b"\x01", hashlib.sha256)
    assert noise_key(SECRET, ONE).hex() == "97ba3b9af325ef54ce564e7e21bf6d3d1f8b8db58f2c6e06dc9097a09a89e138"


@pytest.mark.parametrize("count", [1, 2, 7, 262_144, 262_147])
def test_numbers_are_box_muller_over_the_keyed_stream(count: int) -> None:
    found = np.concatenate([piece.numpy() for piece in standard_normal(SECRET, count)])
    expected = []
    for start in range(0, count, 262_144):
        wanted = min(262_144, count - start)
        pairs = (wanted + 1) // 2
        stream = blake3(key=SECRET).digest(length=8 * start + 16 * pairs)[8 * start :]
        u = (np.frombuffer(stream, "<u8") >> 11).astype(np.float64).reshape(2, pairs)
        radius = np.sqrt(-2 * np.log((u[0] + 1) / 2**53))
        expected.append(
            np.concatenate((radius * np.cos(2 * np.pi * u[1] / 2**53), radius * np.sin(2 * np.pi * u[1] / 2**53)))[
                :wanted
            ]
        )
    assert np.allclose(found, np.concatenate(expected), rtol=1e-12, atol=1e-12)
