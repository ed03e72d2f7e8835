"""Private gradients: each record's own gradient, clipped, summed, plus Gaussian noise. Knows no optimiser, no holder; of secrets one key.

What leaves here is a function of the clipped sum and the noise alone. So nothing else of a record may have an effect: a record whose
gradient cannot be computed counts as zero instead of failing the step, and no record's random numbers depend on another's.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import torch
from blake3 import blake3
from torch import Tensor

from gpu_agent.workload.loader import LoadedProgram
from gpu_agent.workload.records import least_records
from shared.canonical import cbor_bytes, keyed_blake3, sha256
from shared.claims.privacy import Privacy
from shared.errors import InvalidProgram

_PIECE: Final = 1 << 18  # numbers made at once: bounds the memory that noise for a large tensor takes
_UNIT: Final = 2.0**-53


@dataclass(frozen=True)
class Noise:
    """What is added, and what it is drawn from. `key`: 32 bytes, secret, of one training only (`shared.crypto.schedule.noise_key`)."""

    privacy: Privacy
    key: bytes

    def __repr__(self) -> str:
        return "Noise(…)"


def standard_normal(key: bytes, count: int) -> Iterator[Tensor]:
    """`count` numbers from N(0, 1), float64, in pieces: Box-Muller over the keyed BLAKE3 stream, two numbers of 53 bits a pair.

    No generator of a library's: who knows all of a step but one record sees the noise itself, and from a Mersenne Twister's output its
    next numbers follow. The largest number is 8.6; beyond lies 1e-17 of the distribution.
    """
    for start in range(0, count, _PIECE):
        wanted = min(_PIECE, count - start)
        pairs = -(-wanted // 2)
        stream = bytearray(blake3(key=key).digest(length=16 * pairs, seek=8 * start))
        bits = torch.frombuffer(stream, dtype=torch.int64).bitwise_right_shift(11).bitwise_and((1 << 53) - 1)
        uniform = bits.to(torch.float64).view(2, pairs)
        radius = torch.log((uniform[0] + 1.0) * _UNIT).mul_(-2.0).sqrt_()
        angle = uniform[1] * (2.0 * math.pi * _UNIT)
        yield torch.cat((radius * torch.cos(angle), radius * torch.sin(angle)))[:wanted]


def record_seed(seed: int, global_step: int, place: int) -> int:
    """Seed of one record's dropout, 63 bits, by its place in the step; public."""
    return int.from_bytes(sha256(cbor_bytes(["gput/record-seed", seed, global_step, place]))[:8], "big") >> 1


class PrivateGradients:
    """Fills the caller's gradients with a step's private mean.

    Args:
        params, grads: by canonical name, in the manifest's order; `grads` are written.
        seed: of the session, for dropout.
    """

    def __init__(
        self, program: LoadedProgram, params: Mapping[str, Tensor], grads: Mapping[str, Tensor],
        state: Mapping[str, Tensor], noise: Noise, seed: int,
    ) -> None:  # fmt: skip
        self._program, self._state, self._noise, self._seed = program, state, noise, seed
        self._params, self._grads = dict(params), dict(grads)

    def probe(self) -> None:
        """Try a record of least values, which is nobody's: what fails there is the program's fault and may be told.

        Raises:
            InvalidProgram: it cannot be trained record by record.
        """
        try:
            self._gradient(least_records(self._program.manifest.records, 1))
        except (InvalidProgram, RuntimeError):
            raise InvalidProgram(
                "The program cannot be trained privately: it fails on a batch of one record of least values",
                code="program-not-private",
                remedy="Write the model so that a batch may hold one record, and any values in their declared ranges.",
            ) from None

    def fill(self, batch: Mapping[str, Tensor], global_step: int) -> float:
        """The step's private mean gradient into `grads`; the mean loss of the records that have one, which only its owner may see."""
        for gradient in self._grads.values():
            gradient.zero_()
        size = len(next(iter(batch.values())))
        losses = []
        for place in range(size):
            if self._program.draws:
                torch.manual_seed(record_seed(self._seed, global_step, place))
            try:
                loss, gradients = self._gradient({name: values[place : place + 1] for name, values in batch.items()})
            except (InvalidProgram, RuntimeError):
                continue  # to fail the step would tell something of this record
            self._add(gradients)
            losses.append(loss)
        self._finish(global_step, size)
        return sum(losses) / len(losses) if losses else math.nan

    def _gradient(self, record: Mapping[str, Tensor]) -> tuple[float, list[Tensor | None]]:
        device = next(iter(self._params.values())).device
        record = {name: values.to(device) for name, values in record.items()}
        losses, _ = self._program.train(self._params, self._state, record)
        found = torch.autograd.grad(losses.sum(), list(self._params.values()), allow_unused=True)
        return losses.item(), list(found)

    def _add(self, gradients: list[Tensor | None]) -> None:
        """Clip to the norm and add. What has no finite norm adds nothing, nor what only a factor without all its digits would clip: it is
        applied in float32, and rounded to one of the few numbers down there it would leave up to twice the norm."""
        norm = math.sqrt(sum(float(g.double().square().sum()) for g in gradients if g is not None))
        factor = min(1.0, self._noise.privacy.max_grad_norm / norm) if norm else 0.0
        if not math.isfinite(norm) or factor < torch.finfo(torch.float32).tiny:
            return
        for total, gradient in zip(self._grads.values(), gradients, strict=True):
            if gradient is not None:
                total.add_(gradient, alpha=factor)

    def _finish(self, global_step: int, size: int) -> None:
        privacy = self._noise.privacy
        deviation = privacy.noise_multiplier * privacy.max_grad_norm
        for name, total in self._grads.items():
            key, flat, start = (
                keyed_blake3(self._noise.key, cbor_bytes(["gput/noise", global_step, name])),
                total.view(-1),
                0,
            )
            for piece in standard_normal(key, flat.numel()):
                part = flat[start : start + len(piece)]
                part.copy_(
                    (part.double() + (piece * deviation).to(part.device)) / size
                )  # in float64: rounding comes after the noise
                start += len(piece)
