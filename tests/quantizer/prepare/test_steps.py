"""Each normalisation pass by itself on a tiny graph."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest
from qprof_onnx.profiles.base.errors import ModelError
from qprof_onnx.quantizer.prepare.cleanup import (
    drop_noops,
    merge_equal_initializers,
    name_nodes,
    name_values,
    remove_dead,
    scalar_ranges,
    trim_inputs,
    trim_outputs,
    unshare_names,
)
from qprof_onnx.quantizer.prepare.constant_folding import fold_constants, lift_constants
from qprof_onnx.quantizer.prepare.inlining import (
    inline_functions,
    raise_ir_version,
    unlist_initializers,
)
from qprof_onnx.quantizer.prepare.shapes import clean_shapes, infer_shapes, skeleton


def parsed(text: str, opset: int = 17, ir_version: int = 8, domains: str = "") -> ir.Model:
    head = f'<ir_version: {ir_version}, opset_import: ["" : {opset}{domains}]>\n'
    return ir.from_proto(onnx.parser.parse_model(head + text))


def operators(model: ir.Model) -> list[str]:
    return [node.op_type for node in model.graph]


BRANCHES = (
    "d = If(c)<then_branch = a () => (float[2] p) { p = Neg(u) },"
    " else_branch = e () => (float[2] q) { q = Abs(u) }>"
)

# unused nodes, outputs and constants


def test_what_only_a_removed_if_reads_is_removed_with_it() -> None:
    text = f"g (float[2] x, bool c) => (float[2] y) {{ u = Exp(x)  {BRANCHES}  y = Relu(x) }}"
    model = parsed(text)
    assert remove_dead(model) == 2
    assert operators(model) == ["Relu"]


def test_an_unused_output_before_a_used_one_keeps_its_name() -> None:
    text = (
        "g (float[1,1,2] x, float[1,8,2] w, float[1,8,2] r) => (float[1,1,2] h)"
        "{ s, h = LSTM<hidden_size = 2>(x, w, r) }"
    )
    model = parsed(text)
    assert remove_dead(model) + trim_outputs(model) == 0
    assert [value.name for value in model.graph[0].outputs] == ["s", "h"]


def test_unused_initialisers_are_removed_and_those_that_are_outputs_are_not() -> None:
    model = parsed(
        "g (float[1] x) => (float[1] y, float[1] k) <float[1] k = {1}, float[1] l = {2}> { y = Relu(x) }"
    )
    assert remove_dead(model) == 1
    assert list(model.graph.initializers) == ["k"]


def test_trailing_unused_outputs_are_cut_off_except_those_of_training() -> None:
    model = parsed("g (float[1,1,4,4] x) => (float[1,1,3,3] y) { y, i = MaxPool<kernel_shape = [2, 2]>(x) }")
    assert trim_outputs(model) == 1
    assert len(model.graph[0].outputs) == 1
    norm = parsed(
        "g (float[1,2] x, float[2] p) => (float[1,2] y)"
        "{ y, m, v = BatchNormalization<training_mode = 1>(x, p, p, p, p) }"
    )
    assert trim_outputs(norm) == 0


def test_trailing_inputs_that_are_left_out_are_cut_off() -> None:
    model = parsed('g (float[2] x) => (float[2] y) { y = Clip(x, "", "") }')
    assert trim_inputs(model) == 2
    assert len(model.graph[0].inputs) == 1
    assert trim_inputs(model) == 0


def test_equal_matrices_are_merged_and_equal_vectors_of_floats_are_not() -> None:
    text = (
        "g (float[2,2] x) => (float[2,2] y) <float[2,2] w = {1, 2, 3, 4}, float[2,2] u = {1, 2, 3, 4},"
        "float[2] b = {0, 0}, float[2] c = {0, 0}> { t = Gemm(x, w, b)  y = Gemm(t, u, c) }"
    )
    model = parsed(text)
    assert merge_equal_initializers(model) == 1
    assert list(model.graph.initializers) == ["w", "b", "c"]


def test_constants_of_other_types_or_shapes_are_not_merged() -> None:
    model = parsed(
        "g (int64[2] x) => (int64[2] y, int32[2] z) <int64[2] a = {0, 0}, int64[1,2] b = {0, 0},"
        "int32[2] c = {0, 0}> { s = Add(x, a)  t = Add(s, b)  y = Squeeze(t)  z = Neg(c) }"
    )
    assert merge_equal_initializers(model) == 0


def test_matrices_that_begin_alike_and_end_otherwise_are_not_merged() -> None:
    model = parsed(
        "g (float[20,20] x) => (float[20,20] y) <float[20,20] w, float[20,20] u>"
        "{ t = MatMul(x, w)  y = MatMul(t, u) }"
    )
    for name in ("w", "u"):
        array = np.zeros((20, 20), np.float32)
        array[-1, -1] = ord(name)
        value = model.graph.initializers[name] = ir.Value(name=name, const_value=ir.Tensor(array, name=name))
        for node in model.graph:
            node.replace_input_with(1, value if node.inputs[1].name == name else node.inputs[1])
    assert merge_equal_initializers(model) == 0


# constants


def test_constants_of_every_kind_but_strings_become_initialisers() -> None:
    text = (
        "g (float[2] x) => (float[2] y) { a = Constant<value_float = 2.0>()"
        "b = Constant<value_ints = [1, 2]>()  c = Constant<value = float[2] {1, 2}>()"
        "s = Constant<value_strings = ['t']>()"
        "i = Cast<to = 1>(b)  l = StringSplit(s)  d = Mul(a, i)  e = Mul(c, d)  y = Add(x, e) }"
    ).replace("'", '"')
    model = parsed(text)
    assert lift_constants(model) == 3
    assert list(model.graph.initializers) == ["a", "b", "c"]
    assert model.graph.initializers["b"].const_value.numpy().dtype == np.int64


def test_constants_in_branches_become_initialisers_of_the_branch() -> None:
    model = parsed(
        "g (float[2] x, bool c) => (float[2] y) { y = If(c)<then_branch = a () => (float[2] p)"
        "{ k = Constant<value_floats = [1.0, 2.0]>()  p = Add(x, k) },"
        "else_branch = e () => (float[2] q) { q = Abs(x) }> }"
    )
    assert lift_constants(model) == 1
    assert "k" in model.graph[0].attributes["then_branch"].as_graph().initializers


def test_a_node_with_constant_inputs_is_folded_under_the_name_of_its_output() -> None:
    model = parsed(
        "g (float[2] x) => (float[2] y) <float[2] a = {1, 2}> { t = Neg(a)  u = Add(x, a)  y = Mul(u, t) }"
    )
    infer_shapes(model)
    assert fold_constants(model) == 1
    assert model.graph.initializers["t"].const_value.numpy().tolist() == [-1.0, -2.0]
    assert fold_constants(model) == 0


@pytest.mark.parametrize("node", ["t = Cast<to = 1>(a)", "t = Reshape(f, s)"])
def test_a_cast_and_a_reshape_are_folded_without_the_evaluator(
    node: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = parsed(
        "g (float[2] x) => (float[2] y) <int64[2] a = {1, -2}, float[1, 2] f = {1, -2}, int64[1] s = {-1}>"
        f"{{ {node}  y = Mul(x, t) }}"
    )
    monkeypatch.setattr("onnx.reference.ReferenceEvaluator", None)
    assert fold_constants(model) == 1
    assert model.graph.initializers["t"].const_value.numpy().tolist() == [1.0, -2.0]


@pytest.mark.parametrize(
    "node", ["t = RandomNormalLike(a)", "q = QuantizeLinear(a, s)  t = DequantizeLinear(q, s)"]
)
def test_random_numbers_and_conversions_of_constants_are_not_folded(node: str) -> None:
    model = parsed(
        f"g (float[2] x) => (float[2] y) <float[2] a = {{1, 2}}, float s = {{1}}> {{ {node}  y = Add(x, t) }}"
    )
    infer_shapes(model)
    assert fold_constants(model) == 0


# one form for one graph


def test_initialisers_leave_the_inputs_of_the_model_but_not_of_a_loop() -> None:
    body = (
        "y = Loop(n, c, x)<body = b (int64 i, bool k, float[2] s) => (bool l, float[2] t)"
        "<float[2] s = {1, 2}> { l = Identity(k)  u = Add(s, w)  t = Neg(u) }>"
    )
    text = f"g (int64 n, bool c, float[2] x, float[2] w) => (float[2] y) <float[2] w = {{3, 4}}> {{ {body} }}"
    model = parsed(text)
    unlist_initializers(model)
    assert [value.name for value in model.graph.inputs] == ["n", "c", "x"]
    assert len(model.graph[0].attributes["body"].as_graph().inputs) == 3


def test_the_ir_version_is_raised_once_and_the_default_domain_has_one_name() -> None:
    model = parsed("g (float[2] x) => (float[2] y) { y = Relu(x) }", ir_version=4)
    model.graph.opset_imports["ai.onnx"] = model.graph.opset_imports.pop("")
    raise_ir_version(model)
    assert model.graph.opset_imports == {"": 17}
    assert model.ir_version == 8


FUNCTION = '\n<domain: "own", opset_import: ["" : 17]> twice (a) => (b) { b = Add(a, a) }'


def test_functions_are_inlined_and_uncalled_ones_dropped() -> None:
    text = "g (float[2] x) => (float[2] y) { [call] y = own.twice(x) }" + FUNCTION
    model = parsed(text, domains=', "own" : 1')
    inline_functions(model)
    assert operators(model) == ["Add"]
    uncalled = parsed("g (float[2] x) => (float[2] y) { y = Relu(x) }" + FUNCTION, domains=', "own" : 1')
    inline_functions(uncalled)
    assert not uncalled.functions


NESTED = (
    '\n<domain: "own", opset_import: ["" : 17, "own" : 1]> outer (a) => (b) '
    "{ t = own.inner <k: float = 0.5> (a)  [last] b = Neg(t) }"
    '\n<domain: "own", opset_import: ["" : 17]> inner <k> (a) => (b) '
    "{ t = LeakyRelu <alpha: float = @k> (a)  b = Abs(t) }"
)


def test_nodes_and_tensors_of_functions_have_the_path_of_their_call_in_their_names() -> None:
    text = "g (float[2] x) => (float[2] y) { [one] h = own.outer(x)  y = own.outer(h) }" + NESTED
    model = parsed(text, domains=', "own" : 1')
    name_nodes(model)
    inline_functions(model)
    assert [node.name for node in model.graph] == [
        *("one/inner_t/LeakyRelu_t", "one/inner_t/Abs_b", "one/last"),
        *("outer_y/inner_t/LeakyRelu_t", "outer_y/inner_t/Abs_b", "outer_y/last"),
    ]
    assert [value.name for node in model.graph for value in node.outputs] == [
        *("one/inner_t/t", "one/t", "h", "outer_y/inner_t/t", "outer_y/t", "y"),
    ]
    assert [n.attributes["alpha"].value for n in model.graph if n.op_type == "LeakyRelu"] == [0.5, 0.5]


def test_a_recursive_function_is_refused() -> None:
    function = '\n<domain: "own", opset_import: ["own" : 1]> f (a) => (b) { b = own.f(a) }'
    model = parsed("g (float[2] x) => (float[2] y) { y = own.f(x) }" + function, domains=', "own" : 1')
    with pytest.raises(ModelError, match="function 'f' of domain 'own': calls itself; export"):
        inline_functions(model)


def test_functions_that_call_one_another_in_doublings_are_refused_before_any_is_inlined() -> None:
    """Sixty levels are 5 kB of file and 2^60 nodes."""
    head = '\n<domain: "own", opset_import: ["" : 17, "own" : 1]> '
    levels = [f"{head}f{i} (a) => (c) {{ b = own.f{i + 1}(a)  c = own.f{i + 1}(b) }}" for i in range(60)]
    last = f"{head}f60 (a) => (b) {{ b = Neg(a) }}"
    text = "g (float[2] x) => (float[2] y) { y = own.f0(x) }" + "".join(levels) + last
    with pytest.raises(ModelError, match=f"{2**60} nodes, more than 1000000 at most; export"):
        inline_functions(parsed(text, domains=', "own" : 1'))


def test_a_function_of_another_opset_is_inlined_where_its_operators_mean_the_same() -> None:
    function = '\n<domain: "own", opset_import: ["" : 13]> f (a) => (b) { b = Relu(a) }'
    model = parsed("g (float[2] x) => (float[2] y) { y = own.f(x) }" + function, domains=', "own" : 1')
    inline_functions(model)
    assert operators(model) == ["Relu"]


def test_a_function_whose_operator_the_opset_of_the_model_does_not_have_is_refused() -> None:
    function = '\n<domain: "own", opset_import: ["" : 20]> f (a) => (b) { [s] b = Gelu(a) }'
    model = parsed("g (float[2] x) => (float[2] y) { y = own.f(x) }" + function, domains=', "own" : 1')
    with pytest.raises(ModelError, match=r"node 's' \(Gelu\) of function 'f': is of opset 20, and opset 17"):
        inline_functions(model)


# names


def test_nodes_get_unique_names_over_all_graphs() -> None:
    text = (
        f"g (float[2] x, bool c) => (float[2] d) {{ u = Exp(x)  [n] v = Neg(x)  [n] w = Abs(x)  {BRANCHES} }}"
    )
    model = parsed(text)
    assert name_nodes(model) == 5
    names = [node.name for node in ir.traversal.RecursiveGraphIterator(model.graph)]
    assert names == ["Exp_u", "n", "n_2", "If_d", "Neg_p", "Abs_q"]
    assert name_nodes(model) == 0


def test_used_outputs_without_a_name_get_one_after_their_node() -> None:
    model = parsed("g (float[2] x) => (float[2] y) { [first] t = Exp(x)  y = Neg(t) }")
    model.graph[0].outputs[0].name = None
    assert name_values(model) == 1
    assert model.graph[0].outputs[0].name == "first_output_0"


def test_two_branches_with_one_name_get_two() -> None:
    model = parsed(
        "g (float[2] x, bool c) => (float[2] y) { y = If(c)<"
        "then_branch = a () => (float[2] p) { p = Neg(x) },"
        "else_branch = e () => (float[2] p) { p = Abs(x) }> }"
    )
    assert unshare_names(model) == 1
    assert [node.outputs[0].name for node in model.graph.all_nodes()] == ["y", "p", "p_2"]
    assert unshare_names(model) == 0


# nodes without effect


def test_an_identity_between_two_outputs_stays() -> None:
    text = "g (float[2] x) => (float[2] y, float[2] z) { y = Relu(x)  z = Identity(y) }"
    model = parsed(text)
    assert drop_noops(model) == 0
    assert [value.name for value in model.graph.outputs] == ["y", "z"]


def test_vectors_of_one_element_that_a_range_reads_become_scalars() -> None:
    model = parsed("g (int64 n) => (int64[N] y) <int64[1] s = {0}, int64 d = {1}> { y = Range(s, n, d) }")
    name_nodes(model)
    assert scalar_ranges(model) == 1
    assert model.graph.initializers["s"].const_value.shape == ()


# shapes, types and opset


def test_stale_shapes_are_removed_and_inferred_again() -> None:
    model = parsed("g (float[N,3] x) => (float[A,3] y) { t = Relu(x)  y = Neg(t) }")
    model.graph[0].outputs[0].shape = ir.Shape([7, 3])
    clean_shapes(model)
    assert model.graph[0].outputs[0].shape is None
    assert infer_shapes(model) == 1
    assert str(model.graph[0].outputs[0].shape) == "[N,3]"
    assert infer_shapes(model) == 0


def test_the_declared_shape_of_an_output_stays_although_more_is_known() -> None:
    text = "g (float[2,3] x) => (float[A,3] y) { t = Relu(x)  y = Neg(t) }"
    model = parsed(text)
    infer_shapes(model)
    assert str(model.graph.outputs[0].shape) == "[A,3]"


def test_a_reshape_to_a_computed_shape_has_a_rank() -> None:
    text = "g (float[2,6] x, int64[3] s) => (float[A,B,C] y) { t = Reshape(x, s)  y = Relu(t) }"
    model = parsed(text)
    clean_shapes(model)
    infer_shapes(model)
    assert len(model.graph[0].outputs[0].shape) == 3


LOOP = (
    "y = Loop(n, go, x)<body = step (int64 i, bool k, float[A,B] u) => (bool l, float[C,D] v)"
    "{ l = Identity(k)  INNER }>"
)
SCAN = (
    "z, y = Scan<num_scan_inputs = 1, body = row (float[2] q, float[6] u) => (float[2] r, float[C,D] v)"
    "{ r = Neg(q)  INNER }>(p, x)"
)
IF = (
    "y = If(go)<then_branch = a () => (float[C,D] v) { u = Neg(x)  INNER },"
    "else_branch = e () => (float[C,D] w) { w = Abs(x) }>"
)
INNER_IF = IF.replace("y =", "v =").replace(" v)", " o)").replace(" u =", " h =")


@pytest.mark.parametrize(
    ("outer", "inner"),
    [
        (LOOP, "t = Reshape(u, s)  f = Exp(t)  v = Neg(f)"),
        (SCAN, "t = Reshape(u, s)  f = Exp(t)  v = Neg(f)"),
        (IF, "t = Reshape(u, s)  f = Exp(t)  v = Neg(f)"),
        (LOOP.replace("INNER", INNER_IF), "t = Reshape(h, s)  f = Exp(t)  o = Neg(f)"),
    ],
    ids=["Loop", "Scan", "If", "If in a Loop"],
)
def test_a_subgraph_knows_the_sizes_that_a_constant_outside_says(outer: str, inner: str) -> None:
    """Without them a bias in the body of a decoder is fused with a float product: 9 times float's time."""
    model = parsed(
        "g (int64 n, bool go, float[4,6] x, float[2] p) => (float[G,H] y) <int64[2] s = {3, -1}>"
        f"{{ {outer.replace('INNER', inner)} }}"
    )
    clean_shapes(model)
    infer_shapes(model)
    (f,) = (v for node in model.graph.all_nodes() for v in node.outputs if v.name == "f")
    assert f.shape is not None
    assert f.shape[0] == 3
    assert infer_shapes(model) == 0


def test_large_constants_are_inputs_of_the_skeleton() -> None:
    numbers = ", ".join(["1"] * 400)
    model = parsed(
        f"g (float[1,400] x) => (float[1,1] y) <float[400,1] w = {{{numbers}}}, float[1] b = {{1}}>"
        "{ t = MatMul(x, w)  y = Add(t, b) }"
    )
    bare = skeleton(model)
    assert [tensor.name for tensor in bare.graph.initializer] == ["b"]
    assert [value.name for value in bare.graph.input] == ["x", "w"]
    assert list(model.graph.initializers) == ["w", "b"]
