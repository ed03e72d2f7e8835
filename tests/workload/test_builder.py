"""What users write becomes a program with the same losses, or is refused with the reason."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from gpu_agent.workload.builder import build
from gpu_agent.workload.loader import load_program
from gpu_agent.workload.source import ProgramSource
from gpu_agent.workload.tensors import initial_tensors, read_weights
from shared.canonical import sha256
from shared.claims.archive import open_archive
from shared.claims.program import InitRule, SeedInit, WeightsFile
from shared.claims.training import SGD, TrainingOptions
from shared.errors import InvalidProgram
from tests.workload.user_models import IDS, looked_up, same_as_plain, source_of, squares
from tests.workload.workload_helpers import Built, bytes_tensor, place


class _ConvNet(nn.Module):
    """In-place ReLU, convolution, group norm, pooling, a frozen layer, a constant, a non-persistent buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(1, 4, 3, padding=1)
        self.norm = nn.GroupNorm(2, 4)
        self.frozen = nn.Linear(4, 4).requires_grad_(False)
        self.head = nn.Linear(8, 3)
        self.register_buffer("scale", torch.tensor([1.0, 2.0, 3.0]), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm(self.conv(self.frozen(x)[:, None])), inplace=True)
        y = F.max_pool1d(y, 2).flatten(1)
        return F.dropout(self.head(y) * self.scale + torch.tensor([0.5, 0.0, 0.25]), 0.3, self.training)


def test_a_users_convolution_net_equals_plain_pytorch() -> None:
    torch.manual_seed(0)
    source = source_of(_ConvNet())
    archive, _ = build(source)
    manifest = open_archive(archive).manifest
    assert {s.name for s in manifest.parameters} == {
        "conv.weight", "conv.bias", "norm.weight", "norm.bias", "head.weight", "head.bias"
    }  # fmt: skip
    assert {"frozen.weight", "frozen.bias", "scale"} < {s.name for s in manifest.state}
    assert "aten.relu.default" in manifest.operators
    same_as_plain(source, {"x": torch.randn(5, 4)})


class _TiedHead(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(10, 6)
        self.head = nn.Linear(6, 10, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.embed(ids))


def _next_id(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    ids = batch["ids"].to(torch.int64)
    return F.cross_entropy(model(ids[:, 0]), ids[:, 1], reduction="none")


class _InPlaceChain(nn.Module):
    """In-place operators on what nobody else reads: after a view, after dropout, twice."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 6), nn.Dropout(0.5), nn.ReLU(True), nn.Linear(6, 4), nn.SiLU(True))

    def forward(self, x: Tensor) -> Tensor:
        y = self.layers(x).view(-1, 2, 2)
        y += 1.0
        y *= 3.0
        return y.flatten(1)


def test_in_place_operators_become_pure() -> None:
    torch.manual_seed(4)
    same_as_plain(source_of(_InPlaceChain()), {"x": torch.randn(6, 4)})


def test_tied_weights_are_one_parameter() -> None:
    torch.manual_seed(1)
    source = source_of(_TiedHead(), _next_id, IDS)
    manifest = open_archive(build(source)[0]).manifest
    assert [spec.name for spec in manifest.parameters] == ["embed.weight"]
    same_as_plain(source, {"ids": torch.tensor([[1, 2], [9, 0], [3, 3]]).to(torch.uint16)})


def test_an_embedding_with_sparse_gradients_is_built_with_dense_ones() -> None:
    torch.manual_seed(8)
    sparse, dense = (nn.Embedding(10, 3, padding_idx=2, sparse=flag) for flag in (True, False))
    dense.load_state_dict(sparse.state_dict())
    ids, trained = torch.tensor([[1, 2], [9, 0]], dtype=torch.uint16), []
    for model in (sparse, dense):
        placed = place(build(source_of(model, looked_up, IDS)), TrainingOptions(batch_size=2))
        placed.trainer.train(bytes_tensor(ids), 2, 0, 1)
        trained.append(placed.params["weight"])
    assert torch.equal(*trained)
    assert not torch.equal(trained[0], dense.weight)


def test_a_sequential_model_keeps_pytorchs_names() -> None:
    archive, weights = build(
        source_of(nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(True), nn.Linear(8, 2)))
    )
    program = load_program(archive)
    assert [s.name for s in program.manifest.parameters][:2] == ["0.weight", "0.bias"]
    loaded = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))
    loaded.load_state_dict(initial_tensors(program.manifest, weights))


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64])
def test_any_batch_size_runs(size: int, tiny_gpt2: Built) -> None:
    program = load_program(tiny_gpt2[0])
    params = initial_tensors(program.manifest, None)
    assert program.eval(params, {}, {"tokens": torch.zeros(size, 17, dtype=torch.uint8)}).shape == (size,)


class _Noisy(nn.Linear):
    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input) + torch.rand_like(input)


class _NoGradBlock(nn.Linear):
    def forward(self, input: Tensor) -> Tensor:
        with torch.no_grad():
            self.weight.mul_(0.5)
        return super().forward(input)


class _WritesParameter(nn.Linear):
    def forward(self, input: Tensor) -> Tensor:
        self.weight.detach().mul_(0.5)
        return super().forward(input)


class _WritesRecord(nn.Linear):
    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input.mul_(2.0))


class _WritesView(nn.Linear):
    def forward(self, input: Tensor) -> Tensor:
        y = super().forward(input)
        y[:, 0].mul_(2.0)
        return y


class _WritesSplit(nn.Linear):
    def forward(self, input: Tensor) -> Tensor:
        y = super().forward(input)
        first, _ = y.split(2, dim=1)
        first.mul_(2.0)
        return y


class _Branches(nn.Linear):
    def forward(self, input: Tensor) -> Tensor:
        y = super().forward(input)
        return y if float(y.sum()) > 0 else -y


def _unused() -> nn.Module:
    model = nn.Linear(4, 4)
    model.register_parameter("spare", nn.Parameter(torch.zeros(3)))
    return model


REFUSED: dict[str, tuple[Callable[[], ProgramSource], str]] = {
    "operator": (lambda: source_of(_Noisy(4, 4)), "rand_like.*not an allowed operator"),
    "scalar loss": (lambda: source_of(nn.Linear(4, 4), lambda m, b: m(b["x"]).mean()), r"instead of floats of shape"),
    "constant number of losses": (
        lambda: source_of(nn.Linear(4, 4), lambda m, b: m(b["x"]).sum(0)),
        "whatever the batch",
    ),
    "integer loss": (lambda: source_of(nn.Linear(4, 4), lambda m, b: m(b["x"]).argmax(1)), "instead of floats"),
    "two losses": (lambda: source_of(nn.Linear(4, 4), lambda m, b: (squares(m, b),) * 2), "exactly one tensor"),
    "nothing trainable": (lambda: source_of(nn.Linear(4, 4).requires_grad_(False)), "no trainable parameter"),
    "loss ignores the model": (
        lambda: source_of(nn.Linear(4, 4), lambda m, b: b["x"].sum(1)),
        "depend on any parameter",
    ),
    "unused parameter": (lambda: source_of(_unused()), "does not use parameter 'spare'"),
    "no gradient": (lambda: source_of(nn.Linear(4, 4), lambda m, b: squares(m, b).detach()), "No gradient flows"),
    "block without gradients": (lambda: source_of(_NoGradBlock(4, 4)), r"contains a block \(torch.no_grad"),
    "writes a parameter": (lambda: source_of(_WritesParameter(4, 4)), "in place"),
    "writes a record": (lambda: source_of(_WritesRecord(4, 4)), "changes record 'x' in place"),
    "writes a view": (lambda: source_of(_WritesView(4, 4)), "changes a view in place"),
    "writes a part of a split": (lambda: source_of(_WritesSplit(4, 4)), "modified inplace"),
    "depends on values": (lambda: source_of(_Branches(4, 4)), "cannot export"),
    "half precision": (lambda: source_of(nn.Linear(4, 4).to(torch.bfloat16)), "bfloat16, which a program cannot hold"),
    "bad name": (lambda: replace(source_of(nn.Linear(4, 4)), name="Not A Name"), "name is wrong"),
    "sample of another shape": (
        lambda: replace(source_of(nn.Linear(4, 4)), sample={"x": torch.zeros(3, 5)}),
        "'x' does not fit the record schema",
    ),
    "seed rules incomplete": (
        lambda: replace(source_of(nn.Linear(4, 4)), init=SeedInit(seed=1, rules=())),
        "say nothing about tensor 'weight'",
    ),
    "seed rule too many": (
        lambda: replace(
            source_of(nn.Linear(4, 4, bias=False)),
            init=SeedInit(seed=1, rules=tuple(InitRule(name=n, kind="normal", std=1.0) for n in ("weight", "ghost"))),
        ),
        "'ghost', which the model does not have",
    ),
}


@pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad")
@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_what_cannot_be_a_program_is_refused_with_the_reason(case: str) -> None:
    make, words = REFUSED[case]
    with pytest.raises(InvalidProgram, match=words):
        build(make())


def _looks_up_three(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    return model(batch["x"][:, 0].to(torch.int64) + 20).square().sum(dim=1)


def test_a_program_that_fails_when_it_is_tried_out_is_told_in_pytorchs_words() -> None:
    """Nobody's records are in it but the author's own."""
    with pytest.raises(InvalidProgram, match=r"aten\.embedding\.default\): IndexError: .*out of range") as refused:
        build(source_of(nn.Embedding(5, 3), _looks_up_three))
    assert (refused.value.code, "sample" in refused.value.remedy) == ("program-failed", True)


def test_seeded_start_is_made_from_the_rules() -> None:
    rules = (InitRule(name="weight", kind="normal", std=0.5), InitRule(name="bias", kind="constant", value=2.0))
    archive, weights = build(replace(source_of(nn.Linear(4, 400)), init=SeedInit(seed=7, rules=rules)))
    assert weights is None
    manifest = open_archive(archive).manifest
    first, second = initial_tensors(manifest, None), initial_tensors(manifest, None)
    assert torch.equal(first["weight"], second["weight"])
    assert float(first["weight"].std()) == pytest.approx(0.5, rel=0.1)
    assert torch.equal(first["bias"], torch.full((400,), 2.0))


def test_weights_are_named_by_digest_and_must_fit() -> None:
    archive, weights = build(source_of(nn.Linear(4, 4)))
    assert weights is not None
    manifest = open_archive(archive).manifest
    assert manifest.initial_weights == WeightsFile(sha256=sha256(weights).hex(), size_bytes=len(weights))
    for wrong, words in ((None, "needs its initial weights"), (weights[:-1] + b"\1", "are not those")):
        with pytest.raises(InvalidProgram, match=words):
            initial_tensors(manifest, wrong)
    specs = [*manifest.parameters]
    with pytest.raises(InvalidProgram, match="not a safetensors file"):
        read_weights(b"\x80\x04.", specs)
    with pytest.raises(InvalidProgram, match="missing or unknown"):
        read_weights(weights, specs[:1])
    with pytest.raises(InvalidProgram, match="another shape or dtype"):
        read_weights(weights, [specs[0].model_copy(update={"shape": (2, 8)}), *specs[1:]])


def test_a_users_batch_norm_updates_declared_state_only() -> None:
    torch.manual_seed(2)
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    built = build(source_of(model))
    placed = place(built, TrainingOptions(batch_size=8, optimizer=SGD(lr=1e-6)))
    x = torch.randn(8, 4)
    placed.trainer.train(bytes_tensor(x), 8, 0, 1)
    model.train()
    model(x)
    for name, buffer in model.named_buffers():
        assert torch.equal(placed.state[name], buffer), name
