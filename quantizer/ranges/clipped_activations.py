"""What the readers of a tensor can tell apart: a tensor that is only clipped counts as clipped. Pure."""

from __future__ import annotations

from dataclasses import replace

from ...profiles.records.profile import Profile
from ..model.graph import Graph
from ..operators.table import is_clip


def clipped_as(graph: Graph) -> dict[str, str]:
    """Return the tensors that nothing but one clip reads, each with the tensor that the clip makes of it.

    What the clip throws away needs no codes, and the rest is the same in both, so the profile of the second
    serves for the first: the runtime may then compute the clip together with what is before it.
    """
    found: dict[str, str] = {}
    for node in reversed(graph.nodes):
        if not is_clip(node):
            continue
        source, output = node.inputs[0], node.outputs[0].name
        name = source.name if source is not None else None
        maker = graph.producer(name) if name else None
        if not name or not output or maker is None or maker.graph is not node.graph:
            continue  # a body runs another number of times than the graph around it
        if len(graph.consumers(name)) == 1 and not graph.is_result(name):
            found[name] = found.get(output, output)
    return found


def as_seen(profile: Profile, graph: Graph) -> Profile:
    """Return the profile with what clips make of tensors in the place of those tensors.

    So a profile of all tensors and one of the needed tensors lead to the same plan.
    """
    clipped = {name: profile[to] for name, to in clipped_as(graph).items() if to in profile}
    return replace(profile, tensors={**profile.tensors, **clipped})
