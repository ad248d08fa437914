"""Einsum becomes MatMul, with the values of onnx's reference implementation."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from qprof_onnx.quantizer.prepare.prepare import prepare

SIZES = dict(zip("abcdefghijklmnopqrstuvwxyz", [2, 3, 4, 5, 6, 7] * 5, strict=False))

PRODUCTS = (
    *("ij,jk->ik", "ij,kj->ik", "ji,jk->ik", "ij,jk->ki", "bij,jk->bik", "bij,kj->kib"),
    *(
        "bij,bjk->bik",
        "bij,bkj->bik",
        "BTNH,BSNH->BNTS",
        "BNTS,BSNH->BTNH",
        "bhqd,bhkd->bhqk",
        "bhqk,bhkd->bqhd",
    ),
)
"""Taken apart whether or not sizes are known."""

LAYERS = (
    *("ij,ij->", "i,i->", "i,ij->j", "abc,cde->abde", "abcd,cde->abe", "abde,cde->abc"),
    *("bsd,dhk->bhsk", "bqhk,hkd->bqd", "bthd,hdk->btk", "xyzq,zwuq->xywu"),
)
"""Taken apart where the second is a constant."""
STAY = (
    *("ii->i", "ij,ij->i", "bsd,dk", "...ij,jk->...ik", "i,j->ij", "ij->ji", "ij,jk,kl->il"),
    *("bhwc,hkc->bhwk", "ij,jk->k"),
)


def shapes_of(equation: str) -> list[tuple[int, ...]]:
    terms = equation.partition("->")[0].split(",")
    return [tuple(SIZES[letter.lower()] for letter in term) for term in terms]


def einsum(
    equation: str, arrays: list[np.ndarray], dims: list[list[int | str]], constants: tuple[int, ...] = ()
) -> onnx.ModelProto:
    """Return a model of one Einsum, some of whose operands are constants."""
    names = [f"x{place}" for place in range(len(arrays))]
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, d) for n, d in zip(names, dims, strict=True)]
    weights = [numpy_helper.from_array(arrays[place], names[place]) for place in constants]
    node = helper.make_node("Einsum", names, ["y"], equation=equation)
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    inputs = [info for place, info in enumerate(infos) if place not in constants]
    graph = helper.make_graph([node], "g", inputs, [result], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def assert_rewritten(model: onnx.ModelProto, arrays: list[np.ndarray]) -> ir.Model:
    feeds = {info.name: arrays[int(info.name[1:])] for info in model.graph.input}
    (expected,) = ReferenceEvaluator(model).run(None, feeds)
    prepared = prepare(ir.from_proto(model)).model
    (found,) = ReferenceEvaluator(ir.to_proto(prepared)).run(None, feeds)
    assert "Einsum" not in [node.op_type for node in prepared.graph]
    assert found.shape == np.shape(expected)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)  # sums in another order
    again = prepare(prepared).model
    assert [node.op_type for node in again.graph] == [node.op_type for node in prepared.graph]
    return prepared


def drawn(shapes: list[tuple[int, ...]]) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.normal(size=shape).astype(np.float32) for shape in shapes]


@pytest.mark.parametrize("free", [False, True], ids=["known", "free"])
@pytest.mark.parametrize("equation", PRODUCTS)
def test_an_equation_is_what_the_reference_computes(equation: str, free: bool) -> None:
    arrays = drawn(shapes_of(equation))
    terms = equation.partition("->")[0].split(",")
    dims = [list(term) if free else list(array.shape) for term, array in zip(terms, arrays, strict=True)]
    assert_rewritten(einsum(equation, arrays, dims), arrays)


@pytest.mark.parametrize("constant", [0, 1])
@pytest.mark.parametrize("equation", LAYERS)
def test_a_weight_is_a_matrix_on_the_right(equation: str, constant: int) -> None:
    terms, arrow, result = equation.partition("->")
    if constant == 0:
        equation = ",".join(reversed(terms.split(","))) + arrow + result
    arrays = drawn(shapes_of(equation))
    dims: list[list[int | str]] = [["n", *array.shape[1:]] if array.ndim > 1 else ["n"] for array in arrays]
    prepared = assert_rewritten(einsum(equation, arrays, dims, (constant,)), arrays)
    (product,) = [node for node in prepared.graph if node.op_type == "MatMul"]
    weight = product.inputs[1]
    assert weight is not None
    assert weight.const_value is not None
    assert len(weight.const_value.shape) == 2


def test_an_attention_has_no_more_than_its_two_products_and_a_transpose_each() -> None:
    arrays = drawn([(2, 6, 3, 5), (2, 4, 3, 5)])
    prepared = assert_rewritten(einsum("bqhk,blhk->bhql", arrays, [list("bqhk"), list("blhk")]), arrays)
    assert [node.op_type for node in prepared.graph] == ["Transpose", "Transpose", "MatMul"]


@pytest.mark.parametrize("equation", STAY)
def test_other_equations_stay(equation: str) -> None:
    arrays = drawn(shapes_of(equation.replace("...", "")))
    arrays = [array[None] for array in arrays] if "." in equation else arrays
    model = einsum(equation, arrays, [list(array.shape) for array in arrays])
    assert [node.op_type for node in prepare(ir.from_proto(model)).model.graph] == ["Einsum"]
