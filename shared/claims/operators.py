"""Which ATen operators a training program may call, and why each group is safe. Knows no tensor library: names only.

The list is closed: a name that is not here is refused, and so are forms of a few whose shapes would follow from values
(`shared.claims.data_shapes`). Nothing here touches files, processes, sockets or clocks, returns uninitialised memory, re-interprets
storage, or writes to its inputs, except `batch_norm` and `instance_norm`, whose running statistics must be declared state
(`shared.claims.graph` checks that). Dropout is the only randomness.
"""

from __future__ import annotations

from typing import Final

GROUPS: Final[dict[str, str]] = {
    "sizes": "integers from tensor shapes and bounded arithmetic on them",
    "views": "the same values in another shape; storage offsets are never given by the caller",
    "arithmetic": "element by element",
    "comparison": "element by element, to truth values",
    "activations": "element by element",
    "reductions": "fewer values from many",
    "linear-algebra": "matrix products",
    "convolution": "convolutions and pooling",
    "normalisation": "running statistics only as declared state",
    "attention": "scaled dot product",
    "indexing": "bounds are checked by the operator itself; how much is selected never follows from values",
    "creation": "tensors filled with stated values, never with old memory",
    "losses": "per-sample losses",
    "dropout": "the only randomness: drawn from (session seed, global step)",
}

_MEMBERS: Final[dict[str, str]] = {
    "sizes": "aten.sym_size.int operator.add operator.sub operator.mul operator.floordiv operator.getitem",
    "views": """
        aten.view.default aten.reshape.default aten.transpose.int aten.permute.default aten.t.default
        aten.unsqueeze.default aten.squeeze.default aten.squeeze.dim aten.squeeze.dims aten.flatten.using_ints
        aten.unflatten.int aten.expand.default aten.expand_as.default aten.slice.Tensor aten.select.int
        aten.narrow.default
        aten.split.Tensor aten.split_with_sizes.default aten.chunk.default aten.unbind.int aten.movedim.int
        aten.contiguous.default aten.clone.default aten.detach.default aten.alias.default aten.to.dtype
        aten.type_as.default aten.view_as.default aten.swapaxes.default aten.diagonal.default
        aten.repeat.default aten.tile.default aten.flip.default aten.roll.default aten.unfold.default
        aten.cat.default aten.stack.default aten.concat.default aten.pad.default aten.constant_pad_nd.default
        aten.repeat_interleave.self_int aten.broadcast_to.default""",
    "arithmetic": """
        aten.add.Tensor aten.add.Scalar aten.sub.Tensor aten.sub.Scalar aten.rsub.Scalar aten.rsub.Tensor
        aten.mul.Tensor aten.mul.Scalar aten.div.Tensor aten.div.Scalar aten.div.Tensor_mode aten.div.Scalar_mode
        aten.floor_divide.default aten.remainder.Scalar aten.remainder.Tensor aten.neg.default aten.abs.default
        aten.sign.default aten.reciprocal.default aten.square.default aten.sqrt.default aten.rsqrt.default
        aten.exp.default aten.expm1.default aten.log.default aten.log1p.default aten.log2.default aten.sin.default
        aten.cos.default aten.erf.default aten.pow.Tensor_Scalar aten.pow.Tensor_Tensor aten.pow.Scalar
        aten.clamp.default aten.clamp_min.default aten.clamp_max.default aten.maximum.default aten.minimum.default
        aten.round.default aten.floor.default aten.ceil.default aten.lerp.Scalar aten.addcmul.default
        aten.addcdiv.default aten.masked_fill.Scalar aten.masked_fill.Tensor aten.where.self aten.where.ScalarOther
        aten.where.ScalarSelf aten.where.Scalar aten.cumsum.default aten.tril.default aten.triu.default""",
    "comparison": """
        aten.eq.Tensor aten.eq.Scalar aten.ne.Tensor aten.ne.Scalar aten.lt.Tensor aten.lt.Scalar aten.le.Tensor
        aten.le.Scalar aten.gt.Tensor aten.gt.Scalar aten.ge.Tensor aten.ge.Scalar aten.logical_and.default
        aten.logical_or.default aten.logical_not.default aten.logical_xor.default aten.bitwise_and.Tensor
        aten.bitwise_or.Tensor aten.bitwise_not.default aten.isnan.default aten.isfinite.default""",
    "activations": """
        aten.relu.default aten.relu6.default aten.gelu.default aten.silu.default aten.sigmoid.default aten.tanh.default
        aten.leaky_relu.default aten.elu.default aten.selu.default aten.celu.default aten.hardtanh.default
        aten.hardswish.default aten.hardsigmoid.default aten.softplus.default aten.mish.default aten.prelu.default
        aten.glu.default aten.log_sigmoid.default aten.softmax.int aten.log_softmax.int aten.threshold.default""",
    "reductions": """
        aten.sum.default aten.sum.dim_IntList aten.mean.default aten.mean.dim aten.prod.default aten.prod.dim_int
        aten.var.correction aten.std.correction aten.var.dim aten.std.dim aten.var_mean.correction aten.amax.default
        aten.amin.default aten.max.default aten.max.dim aten.min.default aten.min.dim aten.argmax.default
        aten.argmin.default aten.logsumexp.default aten.linalg_vector_norm.default aten.norm.ScalarOpt_dim
        aten.all.default aten.all.dim aten.any.default aten.any.dim aten.topk.default aten.sort.default""",
    "linear-algebra": """
        aten.linear.default aten.matmul.default aten.mm.default aten.bmm.default aten.addmm.default
        aten.baddbmm.default aten.mv.default aten.dot.default aten.einsum.default aten.outer.default
        aten.bilinear.default aten.cosine_similarity.default""",
    "convolution": """
        aten.conv1d.default aten.conv2d.default aten.conv3d.default aten.conv1d.padding aten.conv2d.padding
        aten.conv_transpose1d.default aten.conv_transpose2d.input
        aten.max_pool1d.default aten.max_pool2d.default aten.avg_pool1d.default aten.avg_pool2d.default
        aten.adaptive_avg_pool1d.default aten.adaptive_avg_pool2d.default""",
    "normalisation": """
        aten.layer_norm.default aten.batch_norm.default aten.group_norm.default aten.instance_norm.default
        aten.rms_norm.default""",
    "attention": "aten.scaled_dot_product_attention.default",
    "indexing": """
        aten.embedding.default aten.gather.default aten.index_select.default aten.index.Tensor aten.one_hot.default
        aten.take_along_dim.default""",
    "creation": """
        aten.arange.default aten.arange.start aten.arange.start_step aten.zeros.default aten.ones.default
        aten.full.default aten.zeros_like.default aten.ones_like.default aten.full_like.default aten.new_zeros.default
        aten.new_ones.default aten.new_full.default aten.scalar_tensor.default aten.eye.default""",
    "losses": """
        aten.cross_entropy_loss.default aten.nll_loss.default aten.nll_loss_nd.default
        aten.binary_cross_entropy.default aten.binary_cross_entropy_with_logits.default aten.mse_loss.default
        aten.l1_loss.default aten.smooth_l1_loss.default aten.huber_loss.default aten.kl_div.default""",
    "dropout": "aten.dropout.default aten.feature_dropout.default",
}  # fmt: skip

ALLOWED: Final[dict[str, str]] = {name: group for group, names in _MEMBERS.items() for name in names.split()}
"""Operator name -> group."""

SIZE_ARITHMETIC: Final = frozenset({"operator.add", "operator.sub", "operator.mul", "operator.floordiv"})
SIZES: Final = SIZE_ARITHMETIC | {"aten.sym_size.int"}
"""They give an integer that follows from tensors' shapes."""
TUPLE_RESULT: Final = frozenset({
    "aten.split.Tensor", "aten.split_with_sizes.default", "aten.chunk.default", "aten.unbind.int", "aten.max.dim",
    "aten.min.dim", "aten.topk.default", "aten.sort.default", "aten.var_mean.correction",
})  # fmt: skip
CREATION: Final = frozenset(name for name, group in ALLOWED.items() if group == "creation")

_TENSORS: Final[dict[str, str]] = {
    "0 self 1 other": """
        aten.expand_as.default aten.type_as.default aten.view_as.default aten.add.Tensor aten.sub.Tensor aten.rsub.Tensor
        aten.mul.Tensor aten.div.Tensor aten.div.Tensor_mode aten.floor_divide.default aten.remainder.Tensor
        aten.maximum.default aten.minimum.default aten.eq.Tensor aten.ne.Tensor aten.lt.Tensor aten.le.Tensor
        aten.gt.Tensor aten.ge.Tensor aten.logical_and.default aten.logical_or.default aten.logical_xor.default
        aten.bitwise_and.Tensor aten.bitwise_or.Tensor aten.matmul.default""",
    "0 input 1 weight 2 bias": """
        aten.linear.default aten.conv1d.default aten.conv2d.default aten.conv3d.default aten.conv1d.padding
        aten.conv2d.padding aten.conv_transpose1d.default aten.conv_transpose2d.input""",
    "0 self 1 target": """
        aten.mse_loss.default aten.l1_loss.default aten.smooth_l1_loss.default aten.huber_loss.default aten.kl_div.default""",
    "0 self 1 target 2 weight": """
        aten.cross_entropy_loss.default aten.nll_loss.default aten.nll_loss_nd.default aten.binary_cross_entropy.default""",
    "0 self 1 target 2 weight 3 pos_weight": "aten.binary_cross_entropy_with_logits.default",
    "": """
        aten.arange.default aten.arange.start aten.arange.start_step aten.zeros.default aten.ones.default aten.full.default
        aten.scalar_tensor.default aten.eye.default""",
    "0 tensors": "aten.cat.default aten.stack.default aten.concat.default",
    "1 tensors": "aten.einsum.default",
    "0 self 1 indices": "aten.index.Tensor aten.take_along_dim.default",
    "0 weight 1 indices": "aten.embedding.default",
    "0 self 2 index": "aten.gather.default aten.index_select.default",
    "0 self 1 tensor1 2 tensor2": "aten.addcmul.default aten.addcdiv.default",
    "0 self 1 mat2": "aten.mm.default aten.bmm.default",
    "0 self 1 mat1 2 mat2": "aten.addmm.default",
    "0 self 1 batch1 2 batch2": "aten.baddbmm.default",
    "0 self 1 vec": "aten.mv.default",
    "0 self 1 vec2": "aten.outer.default",
    "0 self 1 tensor": "aten.dot.default",
    "0 input1 1 input2 2 weight 3 bias": "aten.bilinear.default",
    "0 x1 1 x2": "aten.cosine_similarity.default",
    "0 self 1 exponent": "aten.pow.Tensor_Tensor",
    "1 exponent": "aten.pow.Scalar",
    "0 self 1 end": "aten.lerp.Scalar",
    "0 self 1 mask": "aten.masked_fill.Scalar",
    "0 self 1 mask 2 value": "aten.masked_fill.Tensor",
    "0 condition": "aten.where.Scalar",
    "0 condition 1 self": "aten.where.ScalarOther",
    "0 condition 2 other": "aten.where.ScalarSelf",
    "0 condition 1 self 2 other": "aten.where.self",
    "0 self 1 weight": "aten.prelu.default",
    "0 input": "aten.dropout.default aten.feature_dropout.default",
    "0 input 2 weight": "aten.rms_norm.default",
    "0 input 2 weight 3 bias": "aten.layer_norm.default aten.group_norm.default",
    "0 input 1 weight 2 bias 3 running_mean 4 running_var": "aten.batch_norm.default aten.instance_norm.default",
    "0 query 1 key 2 value 3 attn_mask": "aten.scaled_dot_product_attention.default",
}

_FIRST: Final[frozenset[int | str]] = frozenset((0, "self"))
TENSOR_PLACES: Final[dict[str, frozenset[int | str]]] = dict.fromkeys(ALLOWED, _FIRST) | {
    name: frozenset[int | str](int(word) if word.isdigit() else word for word in places.split())
    for places, names in _TENSORS.items()
    for name in names.split()
}
"""Where an operator takes tensors, by position and by name. Everywhere else it takes plain numbers and what follows from sizes: PyTorch
would take a tensor of one integer for a size, too, and a record's value would become one."""

ALIASING: Final = frozenset(
    {name for name, group in ALLOWED.items() if group in {"views", "dropout"}} - {"aten.clone.default"}
    | {"operator.getitem"}
)
"""Operators whose result may share memory with an input; the builder needs this to rewrite in-place operators."""

STATE_WRITERS: Final[dict[str, tuple[int, int, int]]] = {
    "aten.batch_norm.default": (3, 4, 5),
    "aten.instance_norm.default": (3, 4, 5),
}
"""Operators that update running statistics in place: positions of (mean, variance, uses batch statistics)."""

RANDOM: Final[dict[str, tuple[tuple[int, str], tuple[int, str] | None]]] = {
    "aten.dropout.default": ((1, "p"), (2, "train")),
    "aten.feature_dropout.default": ((1, "p"), (2, "train")),
    "aten.scaled_dot_product_attention.default": ((4, "dropout_p"), None),
}
"""Operators that may draw: (probability, train flag), each by its position and by its name, for a graph may give it by either."""
