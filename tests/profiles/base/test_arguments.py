"""Arguments of public functions are held against what they declare."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
import pytest
import qprof_onnx as qprof
from qprof_onnx.profiles.base.arguments import checks_arguments, is_of_type
from qprof_onnx.profiles.base.errors import ConfigError, in_python


class Reader(Protocol):
    def get_next(self) -> Any: ...


class OfOnnxruntime:
    def get_next(self) -> None:
        return None


class OfItems:
    """A data set of torch: a length, and items by number."""

    def __getitem__(self, number: int) -> int:
        return number


@pytest.mark.parametrize(
    ("value", "hint", "fits"),
    [
        ("a", str | Path | None, True),
        (None, str | None, True),
        (3, str | Path, False),
        (np.int64(3), int, True),
        (True, int, False),
        (3, float, True),
        ("3", float, False),
        ("auto", Literal["off", "auto"], True),
        (True, Literal["off", "auto"], False),
        (lambda: 1, Callable[[], int] | None, True),
        ("x", Callable[[], int], False),
        (OfOnnxruntime(), Reader, True),
        (object(), Reader, False),
        ([1, 2], Sequence[int], True),
        ("ab", Sequence[str], False),
        (OfItems(), Iterable[Any], True),
        ({"x": 1}, Iterable[Any], True),
        ({"x": 1}, Iterable[Path], False),
        ([3], Iterable[Path], False),
        ({"x": 1.0}, Mapping[str, float], True),
        (np.zeros(2), npt.NDArray[Any], True),
        ([0.0], npt.NDArray[Any], False),
        ("x", Annotated[int, "described"], False),
        (object(), Any, True),
    ],
)
def test_a_value_is_of_a_type_or_not(value: object, hint: Any, *, fits: bool) -> None:
    assert is_of_type(value, hint) is fits


@checks_arguments
def draw(data: str | Iterable[Any], output: Path | None = None, *sizes: int, seed: int = 0) -> int:
    """Draw."""
    return seed


def test_an_argument_in_the_wrong_place_is_refused_with_the_order() -> None:
    with pytest.raises(ConfigError) as refused:
        draw("a", [1])  # type: ignore[arg-type]
    assert (
        str(refused.value)
        == "draw: output: is of type list; give a Path. The order is draw(data, output, sizes)"
    )
    with pytest.raises(ConfigError, match=r"draw: sizes\[1\]: is 'x'; give a whole number"):
        draw("a", None, 1, "x")  # type: ignore[arg-type]


def test_a_keyword_of_another_type_is_refused_and_others_pass() -> None:
    with pytest.raises(ConfigError, match=r"draw: seed: is 'x'; give a whole number"):
        draw("a", seed="x")  # type: ignore[arg-type]
    assert draw("a", None, 1, seed=7) == 7


@pytest.mark.parametrize(
    ("option", "argument"),
    [
        ("give --data DIR, or --profile FILE", "give data=, or profile="),
        ("use --target openvino", "use target='openvino'"),
        ("--labels and --metric: they exclude each other", "labels= and metric: they exclude each other"),
        ("or --as int8-dynamic or x", "or config='int8-dynamic' or x"),
        ("--set calibrator=mse; see --by-row", "calibrator=mse; see by_row=True"),
        ("see 'qprof quantize --save-plan', --save-plan", "see 'qprof quantize --save-plan', save_plan="),
        ("no a--b.onnx, use --as int4 (weight_type)", "no a--b.onnx, use config='int4' (weight_type)"),
    ],
)
def test_a_message_in_python_names_arguments(option: str, argument: str) -> None:
    assert in_python(option) == argument

    @checks_arguments
    def fails(path: str) -> None:
        raise ConfigError(option)

    with pytest.raises(ConfigError) as refused:
        fails("x")
    assert str(refused.value) == argument


def test_an_item_of_another_type_is_named() -> None:
    paths: Any = ["a", 3]
    with pytest.raises(ConfigError, match=r"merge: profiles\[1\]: is 3; give a path or a Profile"):
        qprof.merge(paths)


def test_an_argument_that_is_missing_stays_an_error_of_python() -> None:
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        draw()  # type: ignore[call-arg]


FUNCTIONS = [
    (name, inspect.signature(getattr(qprof, name)))
    for name in dir(qprof)
    if inspect.isfunction(getattr(qprof, name))
]


@pytest.mark.parametrize("wrong", [3.5, object()], ids=["a number", "an object"])
@pytest.mark.parametrize(("name", "signature"), FUNCTIONS, ids=[name for name, _ in FUNCTIONS])
def test_every_public_function_refuses_what_it_cannot_take_in_a_line(
    name: str, signature: inspect.Signature, wrong: object
) -> None:
    parameters = signature.parameters.values()
    places = [one for one in parameters if one.default is one.empty and one.kind is not one.VAR_KEYWORD]
    if places:
        with pytest.raises(qprof.QprofError, match=rf"^{name}: {places[0].name}(\[0\])?: is "):
            getattr(qprof, name)(*[wrong for _ in places])


STRICT = {
    name: next(iter(one.parameters))
    for name, one in FUNCTIONS
    if one.parameters and "keywords" not in one.parameters
}


@pytest.mark.parametrize(("name", "known"), STRICT.items())
def test_a_keyword_that_a_public_function_does_not_have_is_refused(name: str, known: str) -> None:
    with pytest.raises(ConfigError, match=rf"^{name}: .* '{known}s'; .* Did you mean '{known}'\?"):
        getattr(qprof, name)(**{f"{known}s": 1})


@pytest.mark.parametrize(
    ("keywords", "said"),
    [
        ({"limit": "3"}, "^limit: is '3'; give a whole number"),
        ({"gate": {"min_sqnr": 3}}, "^gate: is of type dict; give a Gate"),
        ({"transform": "imagenet"}, "^transform: is 'imagenet'; give a function"),
        ({"labels": lambda item: item}, r"labels: is a function; give the labels themselves"),
        ({"labels": 3}, r"labels: is of type int; give the labels themselves"),
        ({"labels": [[1, 2], [[3]]]}, r"labels: are lists of different lengths; give one label for each row"),
        ({"target": 3}, "target: is of type int; give its name"),
    ],
)
def test_a_keyword_of_another_type_is_refused_by_name(keywords: dict[str, Any], said: str) -> None:
    with pytest.raises(qprof.QprofError, match=said):
        qprof.quantize("model.onnx", [np.zeros(1)], latency=False, **keywords)


def test_a_limit_that_is_no_number_is_refused_where_it_is_asked(tmp_path: Path) -> None:
    limit: Any = "30"
    with pytest.raises(qprof.ConfigError, match="min_sqnr: is '30'; give a number"):
        qprof.quantize("model.onnx", [np.zeros(1)], gate=qprof.Gate(min_sqnr=limit))
