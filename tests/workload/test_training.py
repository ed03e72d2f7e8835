"""Training a program equals plain PyTorch on the same records, is deterministic, and lands in the caller's bytes."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from gpu_agent.workload.loader import load_program
from gpu_agent.workload.programs.classifier import Classifier, label_losses
from gpu_agent.workload.programs.gpt2 import GPT2, GPT2Config, sample_text, token_losses
from gpu_agent.workload.tensors import initial_tensors, update_norm
from shared.claims.layout import plan_memory, region_digest
from shared.claims.training import SGD, AdamW, Schedule, TrainingOptions, learning_rate_factor
from shared.errors import InvalidData, InvalidProgram
from tests.adversary.rows import attack
from tests.workload.plain_pytorch import train_plain
from tests.workload.workload_helpers import Built, Placed, bytes_tensor, place

CONFIG = GPT2Config(context=16, vocab=256, layers=2, heads=2, width=32)
BATCH, STEPS = 4, 12

OPTIONS = {
    "adamw": TrainingOptions(batch_size=BATCH),
    "adamw, all": TrainingOptions(
        batch_size=BATCH, optimizer=AdamW(lr=3e-3, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.3, decay="all")
    ),
    "adamw, decayed matrices, clipped, cosine": TrainingOptions(
        batch_size=BATCH,
        optimizer=AdamW(lr=1e-2, weight_decay=0.2),
        schedule=Schedule(kind="cosine", warmup_steps=3, final_factor=0.1),
        grad_clip_norm=0.5,
    ),
    "sgd": TrainingOptions(batch_size=BATCH, optimizer=SGD(lr=0.1)),
    "sgd, nesterov, decay, linear": TrainingOptions(
        batch_size=BATCH,
        optimizer=SGD(lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
        schedule=Schedule(kind="linear", warmup_steps=2, total_steps=10),
    ),
}


def _plain_gpt2(built: Built) -> GPT2:
    model = GPT2(CONFIG)
    model.load_state_dict(initial_tensors(load_program(built[0]).manifest, built[1]))
    return model


@pytest.mark.filterwarnings("ignore:.*lr_scheduler.step.*")
@pytest.mark.parametrize("name", OPTIONS, ids=str)
def test_gpt2_equals_plain_pytorch(name: str, tiny_gpt2: Built, tokens: Tensor) -> None:
    options = OPTIONS[name]
    model = _plain_gpt2(tiny_gpt2)
    placed = place(tiny_gpt2, options, total_steps=STEPS)
    before = {key: value.detach().clone() for key, value in placed.params.items()}
    result = placed.trainer.train(bytes_tensor(tokens), len(tokens), 0, STEPS)
    batches = [{"tokens": tokens[i * BATCH : (i + 1) * BATCH]} for i in range(STEPS)]
    assert result.steps == pytest.approx(train_plain(model, token_losses, batches, options, fused=False), abs=2e-6)
    assert result.steps[-1] < result.steps[0] - 0.01
    for key, value in model.state_dict().items():
        torch.testing.assert_close(placed.params[key].detach(), value, atol=2e-5, rtol=1e-4)
    assert result.mean == pytest.approx(sum(result.steps) / STEPS)
    assert result.records == STEPS * BATCH
    assert update_norm(placed.params, before) > 0.01


def test_first_loss_is_bit_for_bit_that_of_plain_pytorch(tiny_gpt2: Built, tokens: Tensor) -> None:
    program = load_program(tiny_gpt2[0])
    params = initial_tensors(program.manifest, None)
    plain = token_losses(_plain_gpt2(tiny_gpt2).eval(), {"tokens": tokens})
    assert torch.equal(program.eval(params, {}, {"tokens": tokens}), plain)
    assert torch.equal(
        program.train(params, {}, {"tokens": tokens[:1]})[0], program.eval(params, {}, {"tokens": tokens[:1]})
    )


def test_gpt2_ends_at_the_bytes_of_plain_pytorch(tiny_gpt2: Built, tokens: Tensor) -> None:
    options = TrainingOptions(batch_size=BATCH, optimizer=AdamW(lr=1e-2, weight_decay=0.1), grad_clip_norm=0.5)
    model = _plain_gpt2(tiny_gpt2)
    placed = place(tiny_gpt2, options, total_steps=STEPS)
    placed.trainer.train(bytes_tensor(tokens), len(tokens), 0, STEPS)
    train_plain(model, token_losses, [{"tokens": t} for t in tokens.split(BATCH)[:STEPS]], options, fused=True)
    assert all(torch.equal(placed.params[key], value) for key, value in model.state_dict().items())


def _labelled(count: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(9)
    features = torch.randn((count, 6), generator=generator)
    return features, (features[:, 0] > 0).to(torch.int64) + (features[:, 1] > 0.5).to(torch.int64)


def _label_buffer(features: Tensor, labels: Tensor) -> Tensor:
    return torch.cat((features.view(torch.uint8), labels[:, None].view(torch.uint8)), dim=1).flatten()


def test_dropout_and_batch_norm_equal_plain_pytorch(noisy_classifier: Built) -> None:
    options = TrainingOptions(batch_size=8, optimizer=AdamW(lr=1e-2), seed=11)
    features, labels = _labelled(160)
    placed = place(noisy_classifier, options)
    model = Classifier(6, 3, (16, 8), True, 0.25)
    model.load_state_dict(initial_tensors(load_program(noisy_classifier[0]).manifest, noisy_classifier[1]))
    result = placed.trainer.train(_label_buffer(features, labels), 160, 0, 20)
    batches = [{"features": f, "label": y} for f, y in zip(features.split(8), labels.split(8), strict=True)]
    # Bit for bit, which only the fused kernel gives: biases before BatchNorm have gradients of pure rounding error.
    assert list(result.steps) == train_plain(model, label_losses, batches, options, fused=True)
    for key, value in model.state_dict().items():
        assert torch.equal(placed.params[key] if key in placed.params else placed.state[key], value), key
    assert placed.state["layers.1.num_batches_tracked"].item() == 20
    model.eval()
    with torch.no_grad():
        expected = label_losses(model, {"features": features, "label": labels}).mean().item()
    before = bytes(placed.model)
    assert placed.trainer.evaluate(_label_buffer(features, labels), 160, 32) == (pytest.approx(expected, abs=1e-5), 160)
    assert bytes(placed.model) == before


def _digest(placed: Placed, built: Built, options: TrainingOptions) -> bytes:
    plan = plan_memory(load_program(built[0]).manifest, options).model
    return region_digest(plan, lambda offset, length: memoryview(placed.model)[offset : offset + length])


def test_the_same_inputs_give_the_same_bytes_also_when_interrupted(noisy_classifier: Built) -> None:
    options = TrainingOptions(batch_size=8, optimizer=AdamW(lr=1e-2, weight_decay=0.1), seed=3, grad_clip_norm=1.0)
    buffer = _label_buffer(*_labelled(160))
    whole, again, interrupted = (place(noisy_classifier, options) for _ in range(3))
    for placed in (whole, again):
        torch.manual_seed(hash(id(placed)) % 2**31)  # the process's own random state must not matter
        placed.trainer.train(buffer, 160, 0, 20)
    half = buffer.numel() // 2
    interrupted.trainer.train(buffer[:half].clone(), 80, 0, 10)
    resumed = place(noisy_classifier, options, resume=interrupted)
    resumed.trainer.train(buffer[half:].clone(), 80, 10, 10)
    assert bytes(whole.model) == bytes(again.model) == bytes(resumed.model)
    assert bytes(whole.optimiser) == bytes(resumed.optimiser)
    assert len({_digest(p, noisy_classifier, options) for p in (whole, again, resumed)}) == 1
    other = place(noisy_classifier, options.model_copy(update={"seed": 4}))
    other.trainer.train(buffer, 160, 0, 20)
    assert bytes(other.model) != bytes(whole.model)


def test_gradients_and_moments_are_the_callers_bytes(tiny_gpt2: Built, tokens: Tensor) -> None:
    placed = place(tiny_gpt2, OPTIONS["adamw"])
    seen: list[tuple[int, float]] = []
    result = placed.trainer.train(bytes_tensor(tokens), len(tokens), 40, 2, lambda s, v: seen.append((s, v)))
    assert [step for step, _ in seen] == [40, 41]
    assert tuple(value for _, value in seen) == result.steps
    assert any(placed.gradients)
    assert any(placed.optimiser)


def test_learning_rate_factor() -> None:
    cosine = Schedule(kind="cosine", warmup_steps=4, final_factor=0.2)
    assert [learning_rate_factor(cosine, s, 12) for s in (0, 3, 4, 8, 12, 99)] == pytest.approx(
        [0.25, 1, 1, 0.6, 0.2, 0.2]
    )
    linear = Schedule(kind="linear", total_steps=10)
    assert [learning_rate_factor(linear, s, 99) for s in (0, 5, 10, 11)] == pytest.approx([1, 0.5, 0, 0])
    assert learning_rate_factor(Schedule(warmup_steps=10), 10**6, 5) == 1.0


def test_range_is_checked_before_anything_is_trained(tokens: Tensor) -> None:
    from gpu_agent.workload.builder import build

    built = build("gpt2", layers=1, heads=1, width=8, context=16, vocab=200)
    placed = place(built, TrainingOptions(batch_size=2))
    before = bytes(placed.model)
    bad = tokens.clamp(max=199)
    bad[7, 3] = 201
    with pytest.raises(InvalidData, match=r"'tokens' of record 7 is above the declared maximum 199") as caught:
        placed.trainer.train(bytes_tensor(bad), len(bad), 0, 1)
    assert "201" not in caught.value.detail
    with pytest.raises(InvalidData, match="record 7"):
        placed.trainer.evaluate(bytes_tensor(bad), len(bad), 4)
    with pytest.raises(InvalidData, match="need 66 records; the buffer has 64"):
        placed.trainer.train(bytes_tensor(bad), len(bad), 0, 33)
    assert bytes(placed.model) == before


@attack("H21", any="stopped: a loss that is not finite updates nothing")
def test_non_finite_loss_stops_before_its_update(noisy_classifier: Built) -> None:
    options = TrainingOptions(batch_size=8, optimizer=SGD(lr=0.1))
    features, labels = _labelled(16)
    features[8:] = 3e38
    placed = place(noisy_classifier, options)
    first = place(noisy_classifier, options)
    result = placed.trainer.train(_label_buffer(features, labels), 16, 0, 2)
    first.trainer.train(_label_buffer(features[:8], labels[:8]), 8, 0, 1)
    assert not result.finite
    assert not math.isfinite(result.steps[1])
    assert all(torch.equal(placed.params[n], first.params[n]) for n in placed.params)


def test_a_failing_operator_quotes_no_record(noisy_classifier: Built) -> None:
    """PyTorch's own message would say which label was out of bounds."""
    program = load_program(noisy_classifier[0])
    tensors = initial_tensors(program.manifest, noisy_classifier[1])
    batch = {"features": torch.zeros(2, 6), "label": torch.tensor([0, 7331])}
    with pytest.raises(InvalidProgram, match=r"node \d+ \(aten.cross_entropy_loss.default\)") as caught:
        program.eval(tensors, tensors, batch)
    assert "7331" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_trainer_refuses_other_tensors(tiny_gpt2: Built, noisy_classifier: Built) -> None:
    placed = place(tiny_gpt2, OPTIONS["adamw"])
    from gpu_agent.workload.training import Trainer

    program = load_program(noisy_classifier[0])
    with pytest.raises(InvalidProgram, match="tensors placed"):
        Trainer(program, placed.params, placed.params, {}, {}, OPTIONS["adamw"], 1)


def test_sampled_text_is_drawn_from_the_seed(tiny_gpt2: Built) -> None:
    weights = initial_tensors(load_program(tiny_gpt2[0]).manifest, None)
    text = sample_text(weights, CONFIG, b"import ", 24, seed=1)
    assert len(text) == 24
    assert text == sample_text(weights, CONFIG, b"import ", 24, seed=1)
    assert text != sample_text(weights, CONFIG, b"import ", 24, seed=2)
    with pytest.raises(ValueError, match="prompt"):
        sample_text(weights, CONFIG, b"", 1, seed=1)
