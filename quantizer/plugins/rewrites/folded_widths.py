"""Convolutions with their width folded into channels: which are faster, and how they are written.

See `folded_width` for the arithmetic. What is around the Conv moves values only:

=========  ============================================  ====================================================
Transpose  [N, H, W, C]                                  channels last
Pad        [N, H, W + zeros, C]                          left out if the columns of a block divide W
Reshape    [N, H, W / columns, columns * C]              a sequence has H = 1
Transpose  [N, columns * C, H, W / columns]
Conv       [N, fold * O, H', W' / fold]                  the sums, requantized
Transpose  [N, H', W' / fold, fold * O]
Reshape    [N, H', W', O]
Slice      the columns of the result                     left out if there are no others
Transpose  [N, O, H', W']
=========  ============================================  ====================================================

onnxruntime on x86-64 computes quantized convolutions with the channels last: the Transposes beside the Conv
cancel against its own, and the outer two against those of its neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from ....profiles.base.errors import PlanError
from ....profiles.base.tuned import tuned
from ...costs.kernels import Sizes, Work, window_work
from ...costs.predicted import MIN_SAVED_US, CostModel
from ...lowering.emitter import constant_shape
from ...lowering.replacement import Replacement, Step, replaced
from ...model.graph import name_of
from ...numerics.affine import QuantParams
from ...operators.facts import KernelSizes
from ...operators.graph import Node
from ...plan.plan import Implementation, Kind, NodePlan, QuantPlan
from .folded_width import FoldedWidth, folded_sizes, folded_width

FOLDS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
"""Numbers of result columns to try; 1 only removes axes of one element."""

MAX_FOLDED_OUTPUTS = tuned(
    128,
    figure="with 64, 128 and 256 it takes 0.396, 0.392 and 0.407 of float's time",
    chosen_on="a spectrogram network",
)
"""Output channels of a folded convolution, at most."""

MIN_FOLDED_SHARE = tuned(
    0.1,
    figure="times between measured points are wrong by as much",
    chosen_on="37 convolutions of few channels",
)
"""Part of a convolution's time that folding its width has to save."""


def best_fold(model: CostModel, node: Node, entry: NodePlan, sizes: Sizes) -> tuple[int, float]:
    """Return the best number of result columns to compute together (0: none), and microseconds saved."""
    is_convolution = node.facts.kernel is KernelSizes.CONVOLUTION and model.graph.is_constant(node.input(1))
    weight = model.sizes.input(node, 1)
    if not is_convolution or weight[0] > MAX_FOLDED_OUTPUTS // 2:
        return 0, 0.0
    times, outputs = {0: model.integer_time(node, entry, sizes=sizes)}, sizes.input(node, 1)[0]
    for fold in FOLDS:
        if fold == 1 or fold * outputs <= MAX_FOLDED_OUTPUTS:
            times[fold] = folded_time(model, node, fold, sizes)
    best = min(times, key=lambda fold: times[fold])
    saved = times[0] - times[best]
    return (best, saved) if saved >= max(MIN_SAVED_US, MIN_FOLDED_SHARE * times[0]) else (0, 0.0)


def folded_time(model: CostModel, node: Node, fold: int, sizes: Sizes) -> float:
    """Return the microseconds of a quantized convolution with its width folded; infinite if it cannot be
    folded, or if nothing would change."""
    read, weight = model.graph.shape(node.input(0)) or (), sizes.input(node, 1)
    form = folded_width(node, weight, read, fold)
    if isinstance(form, str) or (fold == 1 and not form.flat):
        return math.inf
    works = _folded_works(form, node, sizes)
    return sum(model.time_of(work, "integer", in_layout=False) for work in works)


def _folded_works(form: FoldedWidth, node: Node, sizes: Sizes) -> tuple[Work, ...]:
    """Return the kernels of a quantized convolution with its width folded into channels.

    The Transposes around it take no other time than those that onnxruntime puts around any.
    """
    weight, read, out = sizes.input(node, 1), sizes.input(node), sizes.output(node)
    folded_weight, folded_read, made = folded_sizes(form, weight, read, out)
    works = [window_work(folded_weight, folded_read, made, 1, integer=True)]
    works += [Work("Reshape", (float(math.prod(shape)),)) for shape in (folded_read, made)]
    if form.filling:
        works.append(Work("Pad", (float(form.blocks_read * folded_read[1]), float(math.prod(folded_read)))))
    if form.blocks * form.fold > form.result:
        works.append(Work("Slice", (float(form.result * weight[0]), float(math.prod(out)))))
    return tuple(works)


def fold_widths(
    model: ir.Model, plan: QuantPlan, *, whole: bool
) -> tuple[ir.Model, QuantPlan, dict[str, str]]:
    """Return the model and its plan with folded widths of convolutions, and the owner of each added node.

    The model is a copy, or the argument if there is nothing to fold. Unless it is `whole`, entries of unknown
    nodes are skipped. Raises PlanError if a node's width cannot be folded.
    """
    wanted = plan.adjustments.folded_widths
    unknown = wanted.keys() - {name_of(node) for node in model.graph}
    if unknown and whole:
        raise _error(min(unknown), "the model has no such node")
    return replaced(model, plan, lambda node: name_of(node) in wanted, _fold_width)


def _error(name: str, why: str) -> PlanError:
    return PlanError(f"plan: adjustments: folded_widths of '{name}': {why}; remove the entry")


def _form_of(node: ir.Node, plan: QuantPlan) -> FoldedWidth:
    """Return the folded form of a node; PlanError if it cannot be folded."""
    name, entry = name_of(node), plan.nodes.get(name_of(node))
    if node.op_type != "Conv" or entry is None or entry.kind is not Kind.QUANTIZED:
        raise _error(name, "it is not a quantized Conv")
    data, weight = node.inputs[:2]
    shape = None if weight is None else constant_shape(weight)
    if data is None or shape is None:
        raise _error(name, "its weight is not a constant")
    read = [] if data.shape is None else [size if isinstance(size, int) else None for size in data.shape]
    form = folded_width(node, shape, read, plan.adjustments.folded_widths[name])
    if isinstance(form, str):
        raise _error(name, form)
    return form


def _fold_width(written: Replacement) -> None:
    """Write one Conv."""
    node, plan, entry = written.node, written.plan, written.entry
    form, name = _form_of(node, plan), name_of(node)
    data, weight = node.inputs[:2]
    assert data is not None
    assert data.shape is not None
    assert weight is not None
    weight_shape = constant_shape(weight)
    assert weight_shape is not None
    outputs, inputs = weight_shape[:2]
    result, read = plan.tensors.get(name_of(node.outputs[0])), plan.params_read(name, 0, name_of(data))
    if result is None or read is None:
        raise _error(name, "its input or its result has no parameters")
    rank = len(weight_shape)
    batch, *sizes = [size if isinstance(size, int) else None for size in data.shape]
    flat, height = [1] * form.flat, sizes[1] if form.has_height else 1
    result_height = None if height is None else form.across.result_of(height)

    # 1. Blocks of columns, with what fills up the last.
    columns_place = 1 + form.has_height
    wide = form.width + form.filling
    channels_last = {"perm": [0, *range(2, rank), 1]}
    heights = [height] if form.has_height else []
    steps = [Step("Transpose", [batch, *heights, form.width, *flat, inputs], (), channels_last)]
    if form.filling:
        zeros = np.zeros(2 * rank, np.int64)
        zeros[rank + columns_place] = form.filling
        filling = written.constant("filling", zeros)
        steps.append(Step("Pad", [batch, *heights, wide, *flat, inputs], [filling]))
    blocks: list[int | None] = [batch, height, form.blocks_read, form.columns * inputs]
    # A size that is not known is that of the tensor before, which 0 stands for.
    to_blocks = [0, (height or 0) if form.has_height else 1, *blocks[2:]]
    steps.append(Step("Reshape", blocks, [written.constant("blocks", np.array(to_blocks, np.int64))]))
    channels_first = {"perm": [0, 3, 1, 2]}
    steps.append(Step("Transpose", [blocks[0], blocks[3], *blocks[1:3]], (), channels_first))

    # 2. The Conv.
    def per_column(params: QuantParams) -> QuantParams:
        if params.axis is None:
            return params
        scale, zero_point = (np.tile(numbers, form.fold) for numbers in (params.scale, params.zero_point))
        return QuantParams(scale, zero_point, params.qtype, 0, params.block_size)

    operands = [written.of_constant(1, "weight", form.weight, per_column)]
    if len(node.inputs) > 2:
        operands.append(written.of_constant(2, "bias", lambda bias: np.tile(bias, form.fold), per_column))
    made: list[int | None] = [batch, form.fold * outputs, result_height, form.blocks]
    window: dict[str, Sequence[int] | int] = {
        "kernel_shape": form.kernel,
        "pads": form.pads,
        "strides": [form.across.stride, 1],
        "dilations": [form.across.dilation, 1],
    }
    steps.append(Step("Conv", made, operands, window))

    # 3. Columns of the result.
    steps.append(Step("Transpose", [made[0], *made[2:], made[1]], (), {"perm": [0, 2, 3, 1]}))
    result_heights = [result_height] if form.has_height else []
    columns = form.blocks * form.fold
    from_blocks = [
        0,
        *(size or 0 for size in result_heights),
        *(columns, *flat, outputs),
    ]
    around, behind = [batch, *result_heights], [*flat, outputs]
    shape = written.constant("columns", np.array(from_blocks, np.int64))
    steps.append(Step("Reshape", [*around, columns, *behind], [shape]))
    if columns > form.result:
        bounds = (("starts", 0), ("ends", form.result), ("axes", columns_place))
        operands = [written.constant(word, np.array([number], np.int64)) for word, number in bounds]
        steps.append(Step("Slice", [*around, form.result, *behind], operands))
    to_first = {"perm": [0, rank - 1, *range(1, rank - 1)]}
    steps.append(Step("Transpose", [batch, outputs, *around[1:], form.result, *flat], (), to_first))

    moved = NodePlan(Kind.PASS_THROUGH)
    own = {index: params for index, params in entry.inputs.items() if index == 0}
    value, params, planned = data, read, replace(moved, inputs=own)
    for step in steps[:-1]:
        if step.op_type == "Conv":
            planned, params = replace(entry, inputs={}), result
        elif step.op_type == "Pad":
            planned = replace(moved, implementation=Implementation.INTEGER)
        value = written.add(step, value, planned)
        written.tensors[name_of(value)], planned = params, moved
    written.finish(steps[-1], value, moved)
