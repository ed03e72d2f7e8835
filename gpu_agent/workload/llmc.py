"""llm.c's GPT-2 model file, from and to our parameter names. Knows no archive and no training; NumPy only.

Format (llm.c, `gpt2_build_from_checkpoint`): 256 little-endian int32 [magic 20240326, version 3, maxT, V, L, NH, C, padded V],
then float32 tensors in the order of `_order`, each block tensor stacked over its L layers. Rows V..padded V of `wte` are
padding: dropped on reading, zero on writing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gpu_agent.workload.programs.gpt2 import GPT2Config
from shared.errors import InvalidData

MAGIC: Final = 20240326
VERSION: Final = 3
_HEADER: Final = 256
_PAD_TO: Final = 128
Floats = NDArray[np.float32]

_BLOCK: Final[tuple[tuple[str, tuple[int, ...]], ...]] = (
    ("ln_1.weight", (1,)),
    ("ln_1.bias", (1,)),
    ("attn.c_attn.weight", (3, 1)),
    ("attn.c_attn.bias", (3,)),
    ("attn.c_proj.weight", (1, 1)),
    ("attn.c_proj.bias", (1,)),
    ("ln_2.weight", (1,)),
    ("ln_2.bias", (1,)),
    ("mlp.c_fc.weight", (4, 1)),
    ("mlp.c_fc.bias", (4,)),
    ("mlp.c_proj.weight", (1, 4)),
    ("mlp.c_proj.bias", (1,)),
)
"""Names inside one block, in llm.c's order, with shapes in units of the width C."""


def _order(config: GPT2Config, padded: int) -> Iterator[tuple[tuple[str, ...], tuple[int, ...]]]:
    """(our names, shape of each) in the file's order; several names are one tensor stacked over layers."""
    width = config.width
    yield ("wte.weight",), (padded, width)
    yield ("wpe.weight",), (config.context, width)
    for name, shape in _BLOCK:
        yield tuple(f"h.{i}.{name}" for i in range(config.layers)), tuple(size * width for size in shape)
    yield ("ln_f.weight",), (width,)
    yield ("ln_f.bias",), (width,)


def _numbers(config: GPT2Config, padded: int) -> int:
    """How many there are in all of `_order`: a sum, for a header may name more layers than there is memory for their names."""
    block = sum(math.prod(size * config.width for size in shape) for _, shape in _BLOCK)
    return (padded + config.context) * config.width + config.layers * block + 2 * config.width


def read_llmc_model(path: str | Path) -> tuple[GPT2Config, dict[str, Floats]]:
    """Sizes and parameters of an llm.c model file, by our names.

    Raises:
        InvalidData: not such a file, another version, or of the wrong length; names the file.
    """
    path = Path(path)
    size = path.stat().st_size
    if size < _HEADER * 4:
        raise InvalidData(f"{path} is too short to be an llm.c model file ({size} bytes)")
    header = np.fromfile(path, dtype="<i4", count=_HEADER)
    magic, version, context, vocab, layers, heads, width, padded = (int(x) for x in header[:8])
    if magic != MAGIC or version != VERSION:
        raise InvalidData(
            f"{path} is not an llm.c fp32 model file",
            expected=f"magic {MAGIC}, version {VERSION}",
            got=f"magic {magic}, version {version}",
            remedy="Export it with llm.c's train_gpt2.py in fp32 (version 3).",
        )
    try:
        config = GPT2Config(context=context, vocab=vocab, layers=layers, heads=heads, width=width)
    except ValueError as error:
        raise InvalidData(f"{path} states impossible sizes: {error}") from error
    expected = 4 * (_HEADER + _numbers(config, padded))
    if padded < vocab or size != expected:
        raise InvalidData(
            f"{path} has {size} bytes where its header announces {expected}, or pads the vocabulary below it"
        )
    return config, _read_tensors(path, config, list(_order(config, padded)))


def _read_tensors(
    path: Path, config: GPT2Config, order: list[tuple[tuple[str, ...], tuple[int, ...]]]
) -> dict[str, Floats]:
    values = np.memmap(path, dtype="<f4", mode="r", offset=_HEADER * 4)
    tensors: dict[str, Floats] = {}
    offset = 0
    for names, shape in order:
        count = int(np.prod(shape))
        for name in names:
            tensors[name] = np.array(values[offset : offset + count], dtype=np.float32).reshape(shape)
            offset += count
    tensors["wte.weight"] = tensors["wte.weight"][: config.vocab].copy()
    return tensors


def write_llmc_model(path: str | Path, config: GPT2Config, tensors: Mapping[str, Floats]) -> None:
    """Write an llm.c model file; the vocabulary is padded to a multiple of 128 as llm.c does.

    Raises:
        InvalidData: a parameter is missing, unknown, or of another shape or dtype.
    """
    padded = -(-config.vocab // _PAD_TO) * _PAD_TO
    order = list(_order(config, padded))
    odd = {name for names, _ in order for name in names} ^ set(tensors)
    if odd:
        raise InvalidData(f"Parameter {sorted(odd)[0]!r} is missing or unknown to GPT-2")
    for names, shape in order:
        for name in names:
            expected = (config.vocab, config.width) if name == "wte.weight" else shape
            if tensors[name].shape != expected or tensors[name].dtype != np.float32:
                raise InvalidData(f"Parameter {name!r} must be float32 of shape {expected}")
    header = np.zeros(_HEADER, dtype="<i4")
    header[:8] = (
        MAGIC, VERSION, config.context, config.vocab, config.layers, config.heads, config.width, padded
    )  # fmt: skip
    with Path(path).open("wb") as file:
        file.write(header.tobytes())
        for names, _ in order:
            for name in names:
                file.write(np.ascontiguousarray(tensors[name], dtype="<f4").tobytes())
                if name == "wte.weight":
                    file.write(bytes(4 * (padded - config.vocab) * config.width))
