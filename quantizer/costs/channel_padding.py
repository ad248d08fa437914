"""How many channels activations should have in the quantized model, by the times of the kernels. Pure.

onnxruntime's integer convolutions are fast for whole blocks of channels (`kernels.BLOCK`): a depthwise one of
72 channels takes 2.5 times as long as one of 80.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..plan.channel_groups import ChannelGroup, channel_groups
from ..plan.plan import QuantPlan
from ..targets.forms import FORMS
from .kernels import BLOCK, Sizes
from .predicted import CostModel
from .shapes import padded_shapes


def find_padding(model: CostModel, plan: QuantPlan) -> dict[str, int]:
    """Return the channels of the activations that are faster with more, by name in graph order.

    Every group that fills no whole block is padded first; then each goes back, in graph order, where that
    costs no time.

    Args:
        model: what is known of the model.
        plan: its plan; what it pads already does not count.
    """
    if not FORMS[plan.config.form].kernels_on_codes:
        return {}
    groups = channel_groups(model.graph, plan)
    chosen = {group: size for group in groups if (size := _whole_blocks(group.channels)) != group.channels}
    for group in list(chosen):
        rest = {other: size for other, size in chosen.items() if other is not group}
        if _time(model, plan, group, rest) <= _time(model, plan, group, chosen):
            chosen = rest
    return {name: size for group, size in chosen.items() for name in group.tensors}


def _whole_blocks(channels: int) -> int:
    return -(-channels // BLOCK) * BLOCK


def _time(
    model: CostModel, plan: QuantPlan, group: ChannelGroup, padded: Mapping[ChannelGroup, int]
) -> float:
    """Return the microseconds of the nodes around a group."""
    sizes = Sizes(model.graph, padded_shapes(model.sizes.shapes, model.graph, padded))
    nodes = {node.name: node for node in model.graph.nodes}
    return sum(model.integer_time(nodes[n], plan.nodes[n], plan, sizes=sizes) for n in group.nodes)
