"""An activation that only a Relu or Clip reads is calibrated with the profile of the clip's output. Pure."""

from __future__ import annotations

from dataclasses import replace

from ...profiles.records.profile import Profile
from ..model.graph import Graph
from ..operators.table import is_clip


def clip_outputs(graph: Graph) -> dict[str, str]:
    """Return the tensors that nothing but one clip reads, each with the output of the clip.

    What the clip cuts off needs no quantized values, and the rest is the same in both, so the profile of the
    output serves for the input: the runtime may then fuse the clip with the operator before it.
    """
    found: dict[str, str] = {}
    for node in reversed(graph.nodes):
        if not is_clip(node):
            continue
        source, output = node.inputs[0], node.outputs[0].name
        name = source.name if source is not None else None
        maker = graph.producer(name) if name else None
        if not name or not output or maker is None or maker.graph is not node.graph:
            continue  # a subgraph runs another number of times than the graph around it
        if len(graph.consumers(name)) == 1 and not graph.is_result(name):
            found[name] = found.get(output, output)
    return found


def with_clip_profiles(profile: Profile, graph: Graph) -> Profile:
    """Return the profile in which a tensor that only a clip reads has the profile of the clip's output.

    So a profile of all tensors and one of the needed tensors lead to the same plan.
    """
    clipped = {name: profile[to] for name, to in clip_outputs(graph).items() if to in profile}
    return replace(profile, tensors={**profile.tensors, **clipped})
