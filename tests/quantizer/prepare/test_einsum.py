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
    *("ij,jk->ik", "ij,kj->ik", "ji,jk->ik", "ij,jk", "ij,jk->ki", "ij,ij->i", "ij,ij->", "i,j->ij", "i,i->"),
    *("bij,bjk->bik", "bij,bkj->bik", "bij,bjk->ijk", "bij,jk->bik", "bij,kj->kib", "bij,bj->bi", "ij,jk->k"),
    *("abc,cde->abde", "abcd,cde->abe", "abde,cde->abc", "abc,cd->abd", "bsd,dhk->bhsk", "bqhk,hkd->bqd"),
    *("BTNH,BSNH->BNTS", "BNTS,BSNH->BTNH", "bhqd,bhkd->bhqk", "bhqk,bhkd->bqhd", "bthd,hdk->bthk"),
    *("nchw,ocij->nohw", "nkctv,kvw->nctw", "bhwc,hkc->bhwk", "bhwc,wkc->bhwk", "bcs,bcd->bcsd", "abc,b->ac"),
    *("bsc,cgk,bsg->bsk", "bd,dr,ro->bo", "abc,abd,dc->ab", "ij,jk,kl,lm->im", "bij,bij,ij->b"),
    *("ij->ji", "ijk->ik", "ij->", "ij->ij", "abc->cab", "i->i"),
    *("xyzq,zwuq->xywu", "bxyc,bzwc->bxyzw", "bxyc,bzwc->bzxwy", "abx,aby->xy", "ABc,cD->ABD", "BA", "AB,BC"),
)

BROADCAST = (
    ("...ij,...jk->...ik", (2, 3, 4), (2, 4, 5)),
    ("...ij,jk->...ik", (2, 3, 4), (4, 5)),
    ("...ij,...jk", (2, 1, 3, 4), (3, 4, 5)),
    ("b...d,dk->b...k", (2, 3, 6, 4), (4, 5)),
    ("...d,...d->...", (2, 3, 4), (3, 4)),
    ("i...,j...->ij...", (2, 3), (4, 1)),
    ("bij,bjk->bik", (1, 3, 4), (2, 4, 5)),
    ("...,...", (3,), (2, 3)),
    ("...->...", (2, 3), None),
    ("i,->i", (3,), ()),
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
@pytest.mark.parametrize("equation", [equation for equation in PRODUCTS if equation.count(",") == 1])
def test_an_equation_with_a_constant_is_what_the_reference_computes(equation: str, constant: int) -> None:
    arrays = drawn(shapes_of(equation))
    dims: list[list[int | str]] = [["n", *array.shape[1:]] if array.ndim else [] for array in arrays]
    assert_rewritten(einsum(equation, arrays, dims, (constant,)), arrays)


@pytest.mark.parametrize(("equation", "left", "right"), BROADCAST)
def test_an_ellipsis_broadcasts(equation: str, left: tuple[int, ...], right: tuple[int, ...] | None) -> None:
    arrays = drawn([left] if right is None else [left, right])
    assert_rewritten(einsum(equation, arrays, [list(array.shape) for array in arrays]), arrays)


@pytest.mark.parametrize("constant", [0, 1])
@pytest.mark.parametrize("equation", ["abc,cde->abde", "abcd,cde->abe", "abd,ecd->abec", "bsd,dhk->bhsk"])
def test_a_weight_without_an_index_in_common_is_a_matrix_on_the_right(equation: str, constant: int) -> None:
    terms, arrow, result = equation.partition("->")
    if constant == 0:
        equation = ",".join(reversed(terms.split(","))) + arrow + result
    arrays = drawn(shapes_of(equation))
    dims: list[list[int | str]] = [["batch", "length", *array.shape[2:]] for array in arrays]
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


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [("ii->i", [(3, 3)]), ("bii,bij->bj", [(2, 3, 3), (2, 3, 4)]), ("aB,Bc", [(2, 3), (3, 4)])],
)
def test_a_diagonal_and_an_order_that_runtimes_dispute_stay(
    equation: str, shapes: list[tuple[int, ...]]
) -> None:
    arrays = drawn(shapes)
    model = einsum(equation, arrays, [list(shape) for shape in shapes])
    assert [node.op_type for node in prepare(ir.from_proto(model)).model.graph] == ["Einsum"]
