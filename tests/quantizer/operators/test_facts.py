"""What the table says of every operator, held against onnx's own schemas and against itself."""

from __future__ import annotations

import ast
import inspect
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import MISSING, fields
from pathlib import Path

import numpy as np
import onnx
import onnx.defs
import onnx_ir as ir
import pytest
from onnx import helper
from qprof_onnx.profiles.instrumentation import input_facts
from qprof_onnx.profiles.samples import samples
from qprof_onnx.quantizer.operators import table
from qprof_onnx.quantizer.operators.facts import KernelSizes, Operator, Steps, Values
from qprof_onnx.quantizer.operators.table import (
    OPERATORS,
    ORDINARY,
    RULES,
    UNKNOWN,
    Constraint,
    Rule,
    facts_of,
    rule_of,
)
from qprof_onnx.quantizer.prepare.shapes import IN_DEFAULT_DOMAIN

ROOT = Path(__file__).parent.parent.parent.parent
NAMES = {schema.name for schema in onnx.defs.get_all_schemas_with_history() if schema.domain == ""}


@pytest.mark.parametrize("record", [Operator, Rule])
def test_each_field_is_stated_in_each_entry_or_has_a_default_that_a_comment_explains(
    record: type[Operator],
) -> None:
    required = {"op_type", "kernel", "layout"}
    source = inspect.getsource(record)
    for field in fields(record):
        if field.name in required:
            assert field.default is MISSING
        elif record is Operator or field.name not in {inherited.name for inherited in fields(Operator)}:
            assert field.default is not MISSING, field.name
            assert re.search(rf"^    {field.name}: .*  # \S", source, re.MULTILINE), field.name


def test_every_entry_is_an_operator_of_onnx_or_of_onnxruntime() -> None:
    assert {name for domain, name in OPERATORS if domain == ""} <= NAMES | set(IN_DEFAULT_DOMAIN)
    assert {domain for domain, _ in OPERATORS} == {"", "com.microsoft"}


def test_every_kind_of_kernel_is_that_of_an_entry() -> None:
    assert {entry.kernel for entry in OPERATORS.values()} == set(KernelSizes)


def test_what_passes_quantized_values_through_holds_values_of_its_input() -> None:
    for rule in RULES.values():
        assert (rule.constraint is Constraint.SAME) == (rule.values is not Values.COMPUTED), rule.op_type


def test_an_operator_has_one_entry() -> None:
    names = [(entry.domain, entry.op_type) for entry in (*table._RULES, *table._FLOAT_ONLY)]
    assert not [name for name, count in Counter(names).items() if count > 1]


def test_operators_with_steps_have_no_rule_but_those_that_choose_values() -> None:
    stepping = [rule.op_type for rule in RULES.values() if rule.steps is not Steps.NONE]
    assert stepping == ["TopK"]


SIZES = {"tensor(int64)", "tensor(int32)", "tensor(uint8)", "tensor(bool)"}
INDICES = {
    *(("Gather", 1), ("GatherElements", 1), ("GatherND", 1), ("ScatterND", 1), ("ScatterElements", 1)),
    *(("ReverseSequence", 1), ("RoiAlign", 2), ("CumSum", 1), ("Trilu", 1), ("Where", 0), ("OneHot", 0)),
    *(("Attention", 6), ("RotaryEmbedding", 3)),
    *(("SequenceInsert", 1), ("LSTM", 4), ("GRU", 4), ("RNN", 4), ("MaxUnpool", 1), ("Dropout", 2)),
}
"""Integer inputs that say which values are taken, or how many steps are made: no sizes of the result."""


def _size_inputs(schema: onnx.defs.OpSchema) -> Iterator[int]:
    """Yield the inputs that can hold nothing but integers of the types of sizes, positions and axes."""
    for index, parameter in enumerate(schema.inputs):
        if set(parameter.types) <= SIZES:
            yield index


def test_integers_beside_the_data_are_known_to_decide_on_shapes_or_to_be_indices() -> None:
    reduces = ("Reduce",)
    for (domain, name), entry in OPERATORS.items():
        if domain or entry.shape_inputs is None or name.startswith(reduces) or name in IN_DEFAULT_DOMAIN:
            continue
        for index in _size_inputs(onnx.defs.get_schema(name)):
            assert index in entry.shape_inputs or (name, index) in INDICES, (name, index)


def test_functions_that_are_singular_at_zero_are_those_that_onnx_has_no_finite_value_for() -> None:
    from onnx.reference import ReferenceEvaluator

    for rule in RULES.values():
        if not rule.unary or rule.op_type in ("Pow", "Acosh", "Gelu", "Swish"):
            continue
        node = helper.make_node(rule.op_type, ["x"], ["y"])
        value = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1])
        graph = helper.make_graph([node], "g", [value], [onnx.ValueInfoProto(name="y")])
        with np.errstate(all="ignore"):
            (result,) = ReferenceEvaluator(helper.make_model(graph)).run(None, {"x": np.zeros(1, np.float32)})
        assert rule.singular(ir.node(rule.op_type, []), 0) == (not np.isfinite(result).all()), rule.op_type


def test_an_operator_without_an_entry_is_ordinary_and_one_of_another_domain_is_unknown() -> None:
    assert facts_of(ir.node("Det", [])) is ORDINARY
    assert facts_of(ir.node("Conv", [], domain="com.example")) is UNKNOWN
    assert rule_of(ir.node("Identity", [])) is None
    assert facts_of(ir.node("Identity", [], domain="ai.onnx")).moves_values


def test_what_profiles_know_of_operators_agrees_with_the_table() -> None:
    """Profiles are below the table, and have small lists of their own."""
    moving = {name for (_, name), entry in OPERATORS.items() if entry.moves_values}
    assert set(input_facts._MOVING) <= moving
    assert set(samples.PASSED_ON) <= moving


REWRITING = (
    *("prepare", "lowering", "operators", "reference"),
    *("plugins/exchange", "plugins/formats", "plugins/other_forms", "plugins/rewrites"),
)
"""Rooms of `quantizer` whose subject are operators: the table, and those that rewrite graphs."""

MAKING = {
    "quantizer/adjustments/equalization.py": "writes a Mul",
    "quantizer/noise/measure.py": "writes the nodes that round",
    "quantizer/noise/recurrence.py": "writes the node that onnxruntime runs alone, with its states",
    "quantizer/costs/predicted.py": "the kernel that stands for others",
    "quantizer/costs/kernels.py": "names of measured kernels",
    "quantizer/costs/spellings.py": "names of measured kernels",
    "quantizer/model/unread_types.py": "below the table: a DequantizeLinear that onnxruntime has not",
    "quantizer/model/computed_scales.py": "below the table: scales that a Cast or a DequantizeLinear makes",
    "quantizer/model/opsets.py": "below the table: constants",
    "quantizer/evaluation/doubts.py": "operators of a written model",
    "quantizer/noise/output_kinds.py": "the name of a softmax that is written out, in a reason",
    "quantizer/plugins/layers/layers.py": "the condition among the results of a Loop's body",
    "quantizer/plugins/tune/networks.py": "writes the networks that are measured",
    "quantizer/plugins/tune/kernel_times.py": "what stands in the networks that are measured",
    "quantizer/plugins/tune/node_costs.py": "operators of onnxruntime's profiles",
    "quantizer/targets/machine.py": "writes the product that tells whether kernels saturate",
    "quantizer/targets/conformance.py": "operators of a written model",
    "quantizer/model/graph.py": "below the table: what has subgraphs",
    "quantizer/model/identity.py": "below the table: what decides on a fingerprint",
    "quantizer/model/repairs.py": "below the table: constants",
}
"""The other files of `quantizer` that name operators, and why that is no list of what is true of them."""


def test_no_list_of_operators_stands_outside_of_the_table() -> None:
    found = set()
    for path in sorted((ROOT / "quantizer").rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        if name.removeprefix("quantizer/").startswith(REWRITING):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and node.value in NAMES:
                found.add(name)
    assert found <= set(MAKING)
