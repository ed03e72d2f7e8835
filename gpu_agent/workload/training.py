"""Training and evaluation of one visit over tensors that the caller placed. Knows no memory layout, no keys, no protocol.

Everything is a function of (program, tensors, options, records, global step): the same inputs give the same bytes.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from gpu_agent.workload.accumulation import Accumulator
from gpu_agent.workload.loader import LoadedProgram
from gpu_agent.workload.mixture import Buffer, Mixture
from gpu_agent.workload.optimiser import Optimiser
from gpu_agent.workload.private import Noise, PrivateGradients
from gpu_agent.workload.reading import Reading
from gpu_agent.workload.records import check_records, decode_batch
from shared.canonical import cbor_bytes, sha256
from shared.claims.training import TrainingOptions
from shared.errors import InvalidData, InvalidProgram


@dataclass(frozen=True)
class VisitLosses:
    """Losses of one visit in the program's unit: each step's mean over its batch, and the mean of all steps.

    `records` counts the records trained on; `finite` is False if a loss was NaN or infinite, and then the steps end
    there, before that step's update. Under privacy a loss decides nothing: `finite` is False if the trained model is not finite.
    """

    steps: tuple[float, ...]
    mean: float
    records: int
    finite: bool


def step_seed(seed: int, global_step: int) -> int:
    """Seed of one step's random numbers, 63 bits: a function of session seed and global step, never of visit or attempt."""
    digest = sha256(cbor_bytes(["gput/step-seed", seed, global_step]))
    return int.from_bytes(digest[:8], "big") >> 1


def pin_determinism(threads: int, device: str = "cpu") -> None:
    """Pin this process: thread count, deterministic kernels. Filling fresh memory with NaN is off; it costs a pass.

    On a device they are deterministic where PyTorch has such ones, and no word is lost over the others: each worker would repeat it.
    """
    torch.set_num_threads(threads)
    if not device.startswith("cpu"):
        warnings.filterwarnings("ignore", message=".*determinis", category=UserWarning)
    # What torch.use_deterministic_algorithms does to kernels; that also imports the compiler, to tell it: 0.5 s and tens of MB.
    torch._C._set_deterministic_algorithms(True, warn_only=not device.startswith("cpu"))
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]  # a property of a module


class Trainer:
    """Trains a loaded program in place. Nothing is copied: all updates land in the caller's bytes.

    Args:
        params, state: the tensors of `manifest.parameters` and `manifest.state`, by name.
        grads: one tensor per parameter; becomes its `.grad`.
        moments: the optimiser region's tensors, `exp_avg/<name>` and so on (`shared.claims.layout.plan_memory`).
        total_steps: all steps of the session, for the learning-rate schedule.
        noise: what makes the training private; None: it is not.
        accumulate: each batch's gradient is added to the accumulator among `moments`, and `end_tour` alone steps; `grads` is empty then,
            and `total_steps` counts tours.
    Raises:
        InvalidProgram: a tensor is missing or unknown.
    """

    def __init__(
        self,
        program: LoadedProgram,
        params: dict[str, Tensor],
        grads: dict[str, Tensor],
        moments: dict[str, Tensor],
        state: dict[str, Tensor],
        options: TrainingOptions,
        total_steps: int,
        device: str = "cpu",
        noise: Noise | None = None,
        accumulate: bool = False,
    ) -> None:
        manifest = program.manifest
        names = [spec.name for spec in manifest.parameters]
        self.accumulator = Accumulator(moments, names) if accumulate else None
        if self.accumulator is not None:
            grads = self.accumulator.sums
        if set(params) != set(names) or set(grads) != set(names) or set(state) != {s.name for s in manifest.state}:
            raise InvalidProgram(f"The tensors placed are not those that program {manifest.name!r} declares")
        pin_determinism(options.threads, device)
        self._program = program
        self._schema = manifest.records
        self._options = options
        self._state = state
        self._params = {name: params[name].requires_grad_(True) for name in names}
        # A device makes each step's gradients anew, and hears late that a loss is no number: see `_ahead`.
        self._reading = Reading() if device.startswith("cuda") and noise is None and not accumulate else None
        self._optimiser = Optimiser(
            self._params, grads if self._reading is None else None, moments, options, total_steps
        )
        self._private = None
        if noise is not None:
            ordered = {name: grads[name] for name in names}
            self._private = PrivateGradients(program, self._params, ordered, state, noise, options.seed)

    def train(
        self,
        records: Tensor | Mixture,
        record_count: int,
        first_global_step: int,
        steps: int,
        on_step: Callable[[int, float], None] | None = None,
    ) -> VisitLosses:
        """Train `steps` steps; batch k is records [k*B, (k+1)*B) in their order, B = `options.batch_size`.

        Args:
            records: a buffer (uint8, records end to end), or several buffers' mixture.
            on_step: called with (global step, mean loss of its batch) after each update.
        Raises:
            InvalidData: too few records, or one outside its declared range; nothing was trained.
            InvalidProgram: an operator failed; under privacy, on a record that is nobody's.
        """
        size = self._options.batch_size
        if steps < 1 or steps * size > record_count:
            raise InvalidData(
                f"{steps} steps of {size} records need {steps * size} records; the buffer has {record_count}",
                code="too-few-records",
                remedy="Lower the steps per visit or the batch size, or provide more records.",
            )
        source = records if isinstance(records, Mixture) else Buffer(records)
        source.check(self._schema, record_count)
        if self._private is not None:
            self._private.probe()
        self._optimiser.begin(first_global_step)
        losses: list[float] = []
        for index in range(steps):
            batch = source.batch(self._schema, index * size, (index + 1) * size)
            losses.append(self._step(batch, first_global_step + index))
            if self._private is None and not math.isfinite(losses[-1]):
                break
            if on_step is not None:
                on_step(first_global_step + index, losses[-1])
        finite = math.isfinite(losses[-1]) if self._private is None else self._model_is_finite()
        return VisitLosses(tuple(losses), sum(losses) / len(losses), len(losses) * size, finite)

    def _model_is_finite(self) -> bool:
        return all(bool(torch.isfinite(parameter).all()) for parameter in self._params.values())

    def _step(self, batch: dict[str, Tensor], global_step: int) -> float:
        if self._private is not None:
            value = self._private.fill(batch, global_step)
            self._optimiser.step(global_step)
            return value
        if self._program.draws:
            torch.manual_seed(step_seed(self._options.seed, global_step))
        if self.accumulator is None:
            self._optimiser.zero_grad()
        losses, new_state = self._program.train(self._params, self._state, batch)
        loss = losses.mean()
        value = self._ahead(loss) if self._reading is not None else loss.item()
        if not math.isfinite(value):
            return value
        if self._reading is None:
            loss.backward()  # type: ignore[no-untyped-call]  # PyTorch leaves it untyped
        with torch.no_grad():
            for name, new in new_state.items():
                self._state[name].copy_(new)
        if self.accumulator is None:
            self._optimiser.step(global_step)
        else:
            self.accumulator.count()
        return value

    def _ahead(self, loss: Tensor) -> float:
        """Its value, when backward was asked for already: gradients are this step's own, and dropped where it is no number."""
        assert self._reading is not None
        self._reading.begin(loss)
        loss.backward()  # type: ignore[no-untyped-call]  # PyTorch leaves it untyped
        return self._reading.value()

    def end_tour(self, *, step: bool) -> bool:
        """One optimiser step with the mean gradient of the tour's batches, or none; the accumulator is empty afterwards.

        Returns:
            Whether the model is finite after it; where it is not, it is not to be kept.
        Raises:
            InvalidProgram: this trainer accumulates nothing.
        """
        if self.accumulator is None:
            raise InvalidProgram("gradients are not accumulated here", code="no-accumulator")
        if not step:
            self.accumulator.clear()
            return True
        return self.accumulator.step(self._optimiser) and self._model_is_finite()

    def evaluate(self, buffer: Tensor, count: int, batch_size: int) -> tuple[float, int]:
        """Mean loss of the buffer's first `count` records, and `count`. Changes nothing.

        Raises:
            InvalidData: no records, too few, or one outside its declared range.
            InvalidProgram: an operator failed.
        """
        if count < 1 or batch_size < 1:
            raise InvalidData("There is no record to evaluate on", code="too-few-records")
        check_records(buffer, self._schema, count)
        total = 0.0
        with torch.no_grad():
            for start in range(0, count, batch_size):
                batch = decode_batch(buffer, self._schema, start, min(count, start + batch_size))
                total += float(self._program.eval(self._params, self._state, batch).double().sum())
        return total / count, count


__all__ = ["Trainer", "VisitLosses", "pin_determinism", "step_seed"]
