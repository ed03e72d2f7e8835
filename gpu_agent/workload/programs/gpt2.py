"""GPT-2 in any size: plain PyTorch model, program source, text sampler. Knows no archive, no session.

Radford et al. 2019, "Language Models are Unsupervised Multitask Learners"; parameter names are those of Hugging Face's
`GPT2Model` and nanoGPT, matrices stored (out, in) as in llm.c and nanoGPT.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Final

import torch
import torch.nn.functional as F  # noqa: N812  # PyTorch's own convention
from torch import Tensor, nn

from gpu_agent.workload.source import ProgramSource
from shared.claims.program import InitRule, SeedInit
from shared.claims.records import RecordField, RecordSchema
from shared.claims.training import AdamW, TrainingOptions

COLUMNS: Final = 64
"""A multiple of it keeps rows of logits where a GPU's matrix units want them (NVIDIA, "Matrix Multiplication Background", 2023)."""
NEVER: Final = -30000.0  # a logit whose exponential is 0 beside any other's, and which bfloat16 and float16 can hold


@dataclass(frozen=True)
class GPT2Config:
    """Sizes: `context` tokens at most, `vocab` token ids, `layers` blocks of `heads` heads, `width` channels.

    Raises:
        ValueError: a size is not positive, or the width is not a multiple of the heads.
    """

    context: int = 128
    vocab: int = 256
    layers: int = 6
    heads: int = 4
    width: int = 128

    def __post_init__(self) -> None:
        if any(not isinstance(v, int) or v < 1 for v in asdict(self).values()) or self.width % self.heads:
            raise ValueError(f"sizes must be positive and width a multiple of heads, got {asdict(self)}")
        if self.vocab > 2**16:
            raise ValueError(f"at most 65536 token ids fit the record format, got {self.vocab}")


class Matrix(nn.Linear):
    """A linear map. `narrow`: its product is taken in bfloat16, as PyTorch's autocast would; weights and their gradients stay float32."""

    def __init__(self, inputs: int, outputs: int, narrow: bool) -> None:
        super().__init__(inputs, outputs)
        self.narrow = narrow

    def forward(self, x: Tensor) -> Tensor:
        if not self.narrow:
            return super().forward(x)
        return F.linear(x.to(torch.bfloat16), self.weight.to(torch.bfloat16), self.bias.to(torch.bfloat16))


class Attention(nn.Module):
    """Causal self-attention; one matrix makes queries, keys and values."""

    def __init__(self, config: GPT2Config, narrow: bool) -> None:
        super().__init__()
        self.heads = config.heads
        self.c_attn = Matrix(config.width, 3 * config.width, narrow)
        self.c_proj = Matrix(config.width, config.width, narrow)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = (
            part.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for part in self.c_attn(x).split(width, dim=2)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        out: Tensor = self.c_proj(y.transpose(1, 2).reshape(batch, length, width))
        return out


class MLP(nn.Module):
    """Two matrices with GELU (tanh approximation, as GPT-2)."""

    def __init__(self, config: GPT2Config, narrow: bool) -> None:
        super().__init__()
        self.c_fc = Matrix(config.width, 4 * config.width, narrow)
        self.c_proj = Matrix(4 * config.width, config.width, narrow)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.c_proj(F.gelu(self.c_fc(x), approximate="tanh"))
        return out


class Block(nn.Module):
    """Pre-norm transformer block."""

    def __init__(self, config: GPT2Config, narrow: bool) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(config.width)
        self.attn = Attention(config, narrow)
        self.ln_2 = nn.LayerNorm(config.width)
        self.mlp = MLP(config, narrow)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln_1(x))
        out: Tensor = x + self.mlp(self.ln_2(x))
        return out


class GPT2(nn.Module):
    """GPT-2 with learned positions and a head tied to the token embedding; loads an exported `model.safetensors`.

    `narrow`: what PyTorch's autocast takes in bfloat16: matrix products, attention, and of each token's loss the logarithm; residual
    stream, norms, means of losses, weights and optimiser stay in float32.
    """

    def __init__(self, config: GPT2Config, narrow: bool = False) -> None:
        super().__init__()
        self.config, self.narrow = config, narrow
        self.wte = nn.Embedding(config.vocab, config.width)
        self.wpe = nn.Embedding(config.context, config.width)
        self.h = nn.ModuleList(Block(config, narrow) for _ in range(config.layers))
        self.ln_f = nn.LayerNorm(config.width)

    def forward(self, tokens: Tensor) -> Tensor:
        """Token ids (B, T) int64 -> logits (B, T, vocab), float32."""
        return self.wide_logits(tokens)[..., : self.config.vocab].to(torch.float32)

    def wide_logits(self, tokens: Tensor) -> Tensor:
        """As `forward`, in the precision of the products, with as many columns more as bring them to a multiple of `COLUMNS`.

        A softmax gives them nothing at all. Without them a GPU's matrix units take the head at a quarter of their rate where the
        vocabulary is odd, as GPT-2's 50,257 is: it was 40 % of a step.
        """
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.h:
            x = block(x)
        x, weight, vocab = self.ln_f(x), self.wte.weight, self.config.vocab
        if self.narrow:
            x, weight = x.to(torch.bfloat16), weight.to(torch.bfloat16)
        beyond = -vocab % COLUMNS
        if not beyond:
            return F.linear(x, weight)
        never = (torch.arange(vocab + beyond, device=x.device) >= vocab).to(x.dtype) * NEVER
        return F.linear(x, F.pad(weight, (0, 0, 0, beyond)), never)


def token_losses(model: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
    """Mean next-token loss in nats of each record; field `tokens` is (B, T+1). `model`: a `GPT2`."""
    tokens = batch["tokens"].to(torch.int64)
    logits = model.wide_logits(tokens[:, :-1])  # type: ignore[operator]  # a method, of which torch's stubs know nothing
    size, length, width = logits.shape
    losses = F.cross_entropy(logits.view(-1, width), tokens[:, 1:].reshape(-1), reduction="none")
    return losses.to(torch.float32).view(size, length).mean(dim=1)


def seed_init(model: GPT2, seed: int) -> SeedInit:
    """GPT-2's initial values: N(0, 0.02), residual projections N(0, 0.02/sqrt(2 layers)), biases 0, norm gains 1."""
    return SeedInit(seed=seed, rules=tuple(_rules(model)))


def _rules(model: GPT2) -> Iterator[InitRule]:
    for name, parameter in model.named_parameters():
        if parameter.dim() >= 2:
            residual = name.endswith("c_proj.weight")
            std = 0.02 / math.sqrt(2 * model.config.layers) if residual else 0.02
            yield InitRule(name=name, kind="normal", std=std)
        else:
            yield InitRule(name=name, kind="constant", value=float(".ln_" in f".{name}" and name.endswith("weight")))


def token_records(vocab: int, sequence: int) -> RecordSchema:
    """Records of `sequence` + 1 token ids: inputs and the targets one later."""
    dtype = "uint8" if vocab <= 256 else "uint16"
    return RecordSchema(
        fields=(
            RecordField.model_validate(
                {"name": "tokens", "dtype": dtype, "shape": (sequence + 1,), "min": 0, "max": vocab - 1}
            ),
        )
    )


def source(
    layers: int = 6,
    heads: int = 4,
    width: int = 128,
    context: int = 128,
    vocab: int = 256,
    sequence: int | None = None,
    seed: int = 0,
    precision: str = "float32",
) -> ProgramSource:
    """GPT-2 as a training program. `sequence`: tokens trained on per record, `context` unless given.

    `precision` `bfloat16`: matrix products and attention are taken in it. It is part of the graph, so holders approve it with the program.
    """
    if precision not in ("float32", "bfloat16"):
        raise ValueError(f"precision is float32 or bfloat16, got {precision!r}")
    config = GPT2Config(context=context, vocab=vocab, layers=layers, heads=heads, width=width)
    sequence = sequence or context
    if sequence > context:
        raise ValueError(f"a sequence of {sequence} tokens exceeds the context of {context}")
    model = GPT2(config, narrow=precision == "bfloat16")
    return ProgramSource(
        name="gpt2",
        model=model,
        loss=token_losses,
        records=token_records(vocab, sequence),
        description=f"GPT-2: {layers} layers, {heads} heads, width {width}, context {context}, {vocab} token ids",
        loss_unit="nats per token",
        defaults=TrainingOptions(optimizer=AdamW(lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1), grad_clip_norm=1.0),
        init=seed_init(model, seed),
        tokenizer="bytes" if vocab == 256 else "external",
        metadata={"architecture": "gpt2", **asdict(config)},
    )


def config_from_metadata(metadata: Mapping[str, object]) -> GPT2Config:
    """The sizes that `source` put into a program manifest's metadata.

    Raises:
        ValueError: the metadata is not of a GPT-2 program.
    """
    sizes = {key: metadata.get(key) for key in asdict(GPT2Config())}
    if metadata.get("architecture") != "gpt2" or not all(type(value) is int for value in sizes.values()):
        raise ValueError("the program is not the built-in GPT-2")
    return GPT2Config(**{key: int(str(value)) for key, value in sizes.items()})


def held_out_loss(state_dict: Mapping[str, Tensor], config: GPT2Config, records: Tensor, batch_size: int = 32) -> float:
    """Mean loss in nats per token of an exported model in plain PyTorch; `records`: token ids (N, T+1), any integer dtype."""
    model = GPT2(config)
    model.load_state_dict(dict(state_dict))
    model.eval()
    with torch.no_grad():
        losses = [token_losses(model, {"tokens": part}).double() for part in torch.split(records, batch_size)]
    return float(torch.cat(losses).mean())


def sample_text(
    state_dict: Mapping[str, Tensor],
    config: GPT2Config,
    prompt: bytes,
    n: int,
    seed: int,
    temperature: float = 0.8,
) -> bytes:
    """`n` further bytes of text from a byte-level model, drawn from `seed`.

    Raises:
        ValueError: the prompt is empty, or the model is not byte-level.
    """
    if not prompt or config.vocab != 256:
        raise ValueError("sampling text needs a prompt and a model of 256 token ids")
    model = GPT2(config)
    model.load_state_dict(dict(state_dict))
    model.eval()
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.tensor(list(prompt), dtype=torch.int64)[None]
    with torch.no_grad():
        for _ in range(n):
            logits = model(tokens[:, -config.context :])[0, -1] / temperature
            drawn = torch.multinomial(torch.softmax(logits, dim=0), 1, generator=generator)
            tokens = torch.cat((tokens, drawn[None]), dim=1)
    return bytes(tokens[0].tolist()[len(prompt) :])
