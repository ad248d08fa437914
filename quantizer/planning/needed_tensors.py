"""Which activations a decision can ever ask the profile for. Pure."""

from __future__ import annotations

from collections.abc import Collection

from ...profiles.base.findings import Code, Finding
from ...profiles.records.profile import Profile
from ..noise.activation_ranges import clip_outputs, with_clip_profiles
from ..operators.graph import Graph
from ..plan.formats import recorded_activations
from ..targets.loading import packaged_targets
from .chains import find_chains, inner_tensors, planned_separately


def needed_tensors(graph: Graph, hidden: Collection[str] = ()) -> frozenset[str]:
    """Return the floating-point activations that a plan may need, with any settings.

    Not those between operators that the table lacks, that are only clipped, or inside of chains.
    """
    names = set(recorded_activations(graph))
    for node in graph.nodes:
        rule = node.rule
        if rule is not None:
            names |= {*node.activations, *node.outputs}
    names -= {
        "",
        *hidden,
        *one_with_others(graph),
        *(name for name, to in clip_outputs(graph).items() if to not in hidden),
    }
    return frozenset(name for name in names if graph.is_float(name) and not graph.is_constant(name))


def one_with_others(graph: Graph) -> frozenset[str]:
    """Return the activations inside chains that no packaged target takes apart."""
    chains = [
        chain
        for chain in find_chains(graph)
        if not any(planned_separately(chain, target) for target in packaged_targets())
    ]
    return frozenset(inner_tensors(chains))


def missing_tensors(profile: Profile, graph: Graph, where: str) -> tuple[Finding, ...]:
    """Return a finding when a profile, which may be another tool's, lacks activations that a plan needs."""
    profile, inner = with_clip_profiles(profile, graph), one_with_others(graph)
    names = [*graph.inputs, *(name for node in graph.nodes for name in node.outputs)]
    lacking = [n for n in names if n and graph.is_float(n) and n not in profile and n not in inner]
    if not lacking:
        return ()
    sentence = f"{where} has no entry for {len(lacking)} activations, such as '{lacking[0]}': float"
    return (Finding(Code.IMPORT_LOSES, sentence, lacking[0], {"activations": len(lacking)}),)
