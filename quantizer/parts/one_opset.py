"""Parts of several opsets brought to one, where their operators mean the same in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx_ir as ir

from ...profiles.base.errors import ModelError
from ..model.opsets import in_opset
from ..prepare.passes.inlining import signature
from ..prepare.passes.opset import raise_opset


def to_one_opset(models: Mapping[str, ir.Model]) -> tuple[Sequence[ir.Model], tuple[str, ...]]:
    """Return the models in one opset of each domain, and notes about what was raised.

    Args:
        models: by the names of the parts; they may be changed.

    Raises:
        ModelError: a part has an operator that is another in the opset of the others.
    """
    notes = [f"part {name}: {note}" for name, model in models.items() for note in raise_opset(model)]
    for domain in sorted({d for model in models.values() for d in model.opset_imports} - {""}):
        newest = max(model.opset_imports.get(domain, 1) for model in models.values())
        for name, model in models.items():
            if model.opset_imports.get(domain, newest) != newest:
                _check_same(model, domain, newest, name)
            model.opset_imports[domain] = newest
    newest = max(model.opset_imports.get("", 1) for model in models.values())
    raised = [_in_opset(model, newest, name, notes) for name, model in models.items()]
    return raised, tuple(notes)


def _in_opset(model: ir.Model, newest: int, name: str, notes: list[str]) -> ir.Model:
    before = model.opset_imports.get("", newest)
    if before == newest:
        return model
    notes.append(f"part {name}: opset raised from {before} to {newest}, that of another part")
    if _changed(model, "", newest) is None:
        model.opset_imports[""] = newest
        return model
    try:
        converted = in_opset(model, newest)
    except (RuntimeError, ValueError) as problem:
        raise _refused(name, before, newest, " ".join(str(problem).split())[:200]) from None
    names = {node.outputs[0].name: node.name for node in model.graph.all_nodes() if node.outputs}
    for node in converted.graph.all_nodes():  # the converter drops them
        node.name = node.name or (names.get(node.outputs[0].name) if node.outputs else None)
    converted.metadata_props.update(model.metadata_props)
    return converted


def _check_same(model: ir.Model, domain: str, newest: int, name: str) -> None:
    changed = _changed(model, domain, newest)
    if changed is not None:
        what = f"node '{changed.name}' ({changed.op_type}) of domain '{domain}' is another operator there"
        raise _refused(name, model.opset_imports[domain], newest, what)


def _changed(model: ir.Model, domain: str, newest: int) -> ir.Node | None:
    """Return the first node that means something else, or does not exist, in another opset of its domain."""
    before = model.opset_imports.get(domain, newest)
    for node in ir.traversal.RecursiveGraphIterator(model.graph):
        if node.domain == domain and signature(node, before) != signature(node, newest):
            return node
    return None


def _refused(name: str, before: int, newest: int, what: str) -> ModelError:
    return ModelError(
        f"part {name}: is of opset {before} and cannot be raised to {newest}, that of another part: {what}; "
        "export the parts with one opset"
    )
