"""What the target's cost table predicts for a plan, beside what is measured."""

from __future__ import annotations

from pathlib import Path

from qprof_onnx.quantizer.costs.predicted import CostModel, total_microseconds
from qprof_onnx.quantizer.exchange.profiles import read_profile
from qprof_onnx.quantizer.plan.plan import QuantPlan
from qprof_onnx.quantizer.planning.plan_model import model_facts, plan_from
from qprof_onnx.quantizer.prepare.prepare import open_prepared
from qprof_onnx.quantizer.targets.cost_table import costs_of
from qprof_onnx.quantizer.targets.loading import load_recipe


def predicted_ms(model: Path, plan: QuantPlan, quantized: Path) -> float | None:
    """Return the predicted milliseconds of one run of the quantized model; None without a cost table.

    The sizes are those of a sample of the profile, which lies beside the quantized model.
    """
    table = costs_of(plan.config.target)
    profile = quantized.with_suffix(".yaml")
    if table is None or not profile.exists():
        return None
    prepared = open_prepared(model)
    known = read_profile(profile, prepared.model, prepared.identity, False)
    planned = plan_from(model_facts(prepared, known, load_recipe()))
    assert planned.facts is not None
    costs = CostModel(planned.graph, planned.facts.profile, table).costs(planned.plan)
    return total_microseconds(costs, planned.graph, planned.plan) / 1e3
