"""One node never stops a command: a node that cannot be written, or run as it was written, stays float.

Planning knows the general limits of forms and runtimes. Other problems appear only in the written model, as
an `UnfitNodesError`: a form cannot write a node, the target's documents forbid it, onnxruntime does not load
or run it. The plan is then made again with these nodes in float, each with its reason and a note. An error
that names no node of the plan is passed on to the user.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from ...profiles.base.errors import ModelError
from ...profiles.base.output_files import temporary_folder
from ..evaluation.written_model import load_and_run
from ..lowering.lower import lower
from ..lowering.lowered import LoweredModel, planned_nodes
from ..model.saving import has_external_data, save_model
from ..plan.reasons import FloatReason, ReasonCode, UnfitNodesError, because
from ..planning.facts import PlanningFacts
from ..planning.known import NOTHING, Known
from ..planning.plan_model import PlannedModel, plan_from
from ..targets.conformance import ConformityError, check_conformity

T = TypeVar("T")

MOST_RUNS = 16  # models that onnxruntime refuses before its error is the user's: it names one node at a time

_NAMES = (r"Name:'([^']+)'", r"[Nn]ode ?\(([^()]+)\)", r"node name: ([^)\s]+)", r"node '([^']+)'")
"""How onnxruntime's messages name a node."""


def plan_that_runs(facts: PlanningFacts, original: Path, known: Known = NOTHING) -> PlannedModel:
    """Return the plan whose model suits its target and runs in onnxruntime; `original` is the float model."""
    samples = max(1, facts.measured.data.samples)
    elements = {name: tensor.count / samples for name, tensor in facts.measured.items()}
    name = "quantized model"

    def attempt(known: Known) -> PlannedModel:
        planned = plan_from(facts, known)
        lowered = lower(planned.model, planned.plan)
        with blamed_on_nodes(planned, lowered), temporary_folder() as folder:
            check_conformity(lowered.model, facts.target, name)
            path = folder / "model.onnx"
            save_model(lowered.model, path, has_external_data(facts.prepared.model))
            size = sum(file.stat().st_size for file in Path(folder).iterdir())
            load_and_run(path, size, original, name, elements, target=facts.target.name)
        return planned

    return with_fallback_nodes(known, attempt)


def with_fallback_nodes(known: Known, attempt: Callable[[Known], T]) -> T:
    """Return the result of an attempt to plan and write a model, with more float nodes after a failure."""
    runs = 0
    while True:
        try:
            return attempt(known)
        except UnfitNodesError as error:
            reasons = {name: reason for name, reason in error.reasons.items() if name not in known.unfit}
            runs += any(reason.code is ReasonCode.REFUSED_BY_RUNTIME for reason in reasons.values())
            if not reasons or runs > MOST_RUNS:
                raise
            known = known.with_unfit(reasons)


@contextmanager
def blamed_on_nodes(planned: PlannedModel, lowered: LoweredModel) -> Iterator[None]:
    """Turn an error about a written model into UnfitNodesError, if it names a node."""
    try:
        yield
    except ConformityError as error:
        reasons: dict[str, FloatReason] = {}
        for breached, sentence in error.breaches:
            nodes = planned_nodes(breached, lowered, planned.plan, planned.graph)
            if not nodes:
                raise
            because_of = because(ReasonCode.REFUSED_BY_TARGET, target=error.target, text=sentence)
            reasons |= dict.fromkeys(nodes, because_of)
        raise UnfitNodesError(str(error), reasons) from error
    except ModelError as error:
        named = [name for pattern in _NAMES for name in re.findall(pattern, str(error))]
        by_name = (planned_nodes(name, lowered, planned.plan, planned.graph) for name in named)
        nodes = next((nodes for nodes in by_name if nodes), ())
        if not nodes:
            raise
        text = " ".join(str(error).split(": ", 1)[-1].split())
        refused = because(ReasonCode.REFUSED_BY_RUNTIME, text=text)
        raise UnfitNodesError(str(error), dict.fromkeys(nodes, refused)) from error
