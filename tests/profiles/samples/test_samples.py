"""Where samples come from, and each way in which they can be wrong."""

from __future__ import annotations

import io
import pickle
import re
import struct
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from qprof_onnx.profiles.base.errors import ConfigError, DataError
from qprof_onnx.profiles.samples import arrays as array_files
from qprof_onnx.profiles.samples.objects import ChosenSamples, PreprocessedData
from qprof_onnx.profiles.samples.samples import (
    batches_of_shape,
    has_rows,
    input_specs,
    open_samples,
    rows_of,
    sample_digests,
    set_title,
)
from qprof_onnx.profiles.samples.values import InputSpec, Sample, Samples, drawn_positions

X = InputSpec("x", np.dtype(np.float32), ("N", 3))
MASK = InputSpec("mask", np.dtype(np.int64), ("N", None))
ONE = np.ones((1, 3), np.float32)


class Bomb:
    """Unpickling it leaves a trace."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (pytest.fail, ("a sample was unpickled",))


def refusal(source: Path | str, *specs: InputSpec, limit: int | None = None) -> str:
    with pytest.raises(DataError) as caught:
        list(open_samples(str(source), specs or (X,), limit))
    return str(caught.value)


def assert_says(text: str, *parts: object) -> None:
    missing = [str(part) for part in parts if str(part) not in text]
    assert not missing, f"{missing} not in: {text}"


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Any]:
    monkeypatch.chdir(tmp_path)
    name = "feeds_" + re.sub(r"\W", "_", request.node.name)

    def write(text: str) -> str:
        (tmp_path / f"{name}.py").write_text("import numpy as np\n" + text)
        return name

    return write


# ------------------------------------------------------------------------------------------------ reading


def test_npz_files_give_one_feed_each_in_natural_order(tmp_path: Path) -> None:
    for number in (10, 2, 1):
        np.savez(tmp_path / f"s{number}.npz", mask=np.zeros((1, 2), np.int64), x=ONE * number)
    samples = open_samples(str(tmp_path), (X, MASK))
    assert {tuple(s.arrays) for s in samples} == {("x", "mask")}
    assert [s.name for s in samples] == ["s1.npz", "s2.npz", "s10.npz"]
    assert [s.arrays["x"][0, 0] for s in samples] == [1, 2, 10]
    assert samples.total == 3


def test_hidden_and_other_files_are_passed_over(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", ONE)
    (tmp_path / "._a.npy").write_bytes(b"left by a file manager")
    (tmp_path / "README.md").write_text("what this is")
    samples = open_samples(str(tmp_path), (X,))
    for _ in range(2):  # a folder can be iterated again
        assert [(s.name, s.arrays["x"].tolist()) for s in samples] == [("a.npy", ONE.tolist())]


@given(st.integers(1, 400), st.integers(1, 400))
def test_a_limit_draws_one_sample_of_each_of_as_many_equal_parts(total: int, limit: int) -> None:
    limit = min(limit, total)
    positions = drawn_positions(total, limit)
    parts = [part * total // limit for part in range(limit + 1)]
    assert all(a <= at < b for at, a, b in zip(positions, parts[:-1], parts[1:], strict=True))


@pytest.mark.extra
def test_of_folders_of_classes_a_limit_draws_from_each(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    for folder in range(5):
        (tmp_path / f"{folder}").mkdir()
        for number in range(20):
            picture = np.full((4, 4, 3), folder, np.uint8)
            image.fromarray(picture).save(tmp_path / f"{folder}" / f"{number}.png")
    x = InputSpec("x", np.dtype(np.float32), (1, 3, 4, 4))
    (tmp_path / "recipe.yaml").write_text("base: raw\nlayout: nchw\n")
    data = PreprocessedData(str(tmp_path), str(tmp_path / "recipe.yaml"))
    samples = list(open_samples(data, (x,), limit=10))
    assert [sample.name[0] for sample in samples] == list("0011223344")


def test_samples_of_different_sizes_that_were_drawn_have_no_known_rows() -> None:
    sample = Sample("7.npz", {}, position=7)
    assert [sample.first_row(4, 0, 0), sample.first_row(4, 2, 8), sample.first_row(3, 2, 8)] == [28, 28, 28]
    with pytest.raises(DataError, match=r"7\.npz: has 5 rows, but samples before it have 4.*leave the limit"):
        sample.first_row(5, 2, 8)


@pytest.mark.parametrize("kind", ["folder", "function", "steps"])
def test_chosen_samples_that_are_gone_are_an_error_that_counts_them(kind: str, tmp_path: Path) -> None:
    """The positions 1, 4, 5 and 7 were chosen of at least 8 samples, of which 5 are left."""
    positions = (1, 4, 5, 7)
    if kind == "folder":
        for number in range(5):
            np.save(tmp_path / f"{number}.npy", ONE)
        source, name = open_samples(ChosenSamples(str(tmp_path), positions), (X,)), str(tmp_path)
    elif kind == "function":
        source, name = open_samples(ChosenSamples(lambda: iter([ONE] * 5), positions), (X,)), "data"
    else:  # states go from step to step: samples by their numbers are read in one go
        steps = [Sample(f"a[{number}]", {"x": ONE}) for number in range(5)]
        source, name = (
            Samples(
                "a.txt",
                None,
                lambda part: iter(steps[part]),
                pick=lambda numbers: (step for number, step in enumerate(steps) if number in numbers),
            ).chosen(positions),
            "a.txt",
        )
    read = iter(source)
    assert len([next(read), next(read)]) == 2
    with pytest.raises(DataError) as caught:
        next(read)
    assert_says(str(caught.value), f"{name}: had at least 8 samples", "5 or fewer now", "the same samples")
    assert len(list(source.part(0, 2))) == 2


def test_a_function_gives_feeds_and_is_called_anew(module: Any) -> None:
    name = module(
        "def feeds():\n    for i in range(3):\n        yield {'x': np.full((1, 3), i, np.float32)}\n"
    )
    samples = open_samples(f"{name}:feeds", (X,), limit=2)
    assert samples.total is None
    assert [s.name for s in samples] == [f"{name}:feeds[0]", f"{name}:feeds[1]"]
    assert [s.arrays["x"][0, 0] for s in samples] == [0, 1]


def test_limit_does_not_ask_a_function_for_more(module: Any) -> None:
    name = module("def feeds():\n    yield {'x': np.zeros((1, 3), np.float32)}\n    raise SystemExit\n")
    assert len(list(open_samples(f"{name}:feeds", (X,), limit=1))) == 1


def test_bfloat16_is_read_from_what_numpy_saves(tmp_path: Path) -> None:
    array = np.array([[1.5, -2.0, 3.0]], ml_dtypes.bfloat16)
    np.savez(tmp_path / "a.npz", x=array)
    (sample,) = open_samples(str(tmp_path), (InputSpec("x", array.dtype, (None, 3)),))
    assert sample.arrays["x"].dtype == array.dtype
    assert np.array_equal(sample.arrays["x"], array)


def test_strings_are_read_without_pickling(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.array(["qprof"]))
    (sample,) = open_samples(str(tmp_path), (InputSpec("x", np.dtype(object), (None,)),))
    assert sample.arrays["x"].tolist() == ["qprof"]


def test_scalars_and_unknown_ranks_are_accepted(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", a=np.float32(1), b=np.zeros((1, 2, 3), np.float32))
    specs = (InputSpec("a", np.dtype(np.float32), ()), InputSpec("b", np.dtype(np.float32), None))
    (sample,) = open_samples(str(tmp_path), specs)
    assert sample.arrays["a"].shape == ()


def test_required_inputs_are_those_without_an_initializer() -> None:
    model = ir.from_proto(
        onnx.parser.parse_model(
            """<ir_version: 8, opset_import: ["": 13]>
            g (float[N, 3, ?] x, double[2] w, int64 n, bfloat16[N] b) => (float[N, 3, ?] y)
            <double[2] w = {1.0, 2.0}> { y = Relu(x) }"""
        )
    )
    x, n, b = input_specs(model)
    assert x == InputSpec("x", np.dtype(np.float32), ("N", 3, None))
    assert n == InputSpec("n", np.dtype(np.int64), ())
    assert b.dtype == ml_dtypes.bfloat16


def test_inputs_that_are_no_tensors_are_refused() -> None:
    model = ir.from_proto(
        onnx.parser.parse_model(
            """<ir_version: 8, opset_import: ["": 13]>
            g (seq(float[N]) s) => (int64 n) { n = SequenceLength(s) }"""
        )
    )
    set_title(model, "a/net.onnx")
    with pytest.raises(DataError, match=r"^a/net.onnx: input 's': .*not a tensor; give a model"):
        input_specs(model)


# ----------------------------------------------------------------------------------------------- refusals


def test_a_file_of_arrays_is_one_sample(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", ONE)
    assert [sample.name for sample in open_samples(tmp_path / "a.npy", (X,))] == ["a.npy"]


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("nowhere", ["nowhere: no such folder", "check the path"]),
        ("a.md", ["a.md: is no file of samples", "give pictures"]),
        ("empty", ["is empty", "expected pictures, .txt, .wav"]),
        ("", ["contains 'a.md' but no samples", "expected pictures, .txt, .wav"]),
    ],
)
def test_a_place_without_samples_is_refused(tmp_path: Path, name: str, parts: list[str]) -> None:
    (tmp_path / "a.md").write_text("0\n")
    (tmp_path / "empty").mkdir()
    if not name:
        (tmp_path / "empty").rmdir()
    assert_says(refusal(tmp_path / name), *parts)


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_below_one_is_refused(tmp_path: Path, limit: int) -> None:
    with pytest.raises(ConfigError, match=f"limit: {limit} is below 1; give 1 or more"):
        open_samples(tmp_path, (), limit)


STRINGS = InputSpec("x", np.dtype(object), (2,))


@pytest.mark.parametrize(
    ("arrays", "specs", "parts"),
    [
        ({"x": ONE}, (X, MASK), ["'mask' is missing", "expected int64 of shape (N, ?)", "contains 'x'"]),
        ({"x": ONE, "masks": ONE}, (X, MASK), ["'mask' is missing", "Rename 'masks' to 'mask'?"]),
        (
            {"x": ONE, "label": np.int64(3)},
            (X,),
            ["contains 'label'", "its inputs are 'x'", "remove the array"],
        ),
        ({"x": ONE.astype(np.float64)}, (X,), ["has type float64, expected float32", "convert it"]),
        ({"x": ONE.astype(">f4")}, (X,), ["type float32 in foreign byte order, expected float32"]),
        ({"x": ONE.view("V4")}, (X,), ["has type void32, expected float32"]),
        ({"x": np.ones(2, np.int64)}, (STRINGS,), ["has int64 elements, expected strings"]),
        ({"x": ONE[0, 0]}, (X,), ["has shape () of rank 0, expected (N, 3) of rank 2"]),
        ({"x": ONE[..., None]}, (X,), ["has shape (1, 3, 1) of rank 3, expected (N, 3) of rank 2"]),
        ({"x": np.ones((1, 4), np.float32)}, (X,), ["dimension 1 is 4 and the model fixes it at 3"]),
        ({"x": np.zeros((0, 3), np.float32)}, (X,), ["a batch of no rows"]),
    ],
)
def test_arrays_that_do_not_fit_are_refused_with_the_reason(
    tmp_path: Path, arrays: dict[str, Any], specs: tuple[InputSpec, ...], parts: list[str]
) -> None:
    np.savez(tmp_path / "a.npz", **arrays)
    assert_says(refusal(tmp_path, *specs), "a.npz: ", *parts, "; " if len(specs) == 1 else ": ")


def test_an_npy_file_cannot_feed_several_inputs(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", ONE)
    assert_says(refusal(tmp_path, X, MASK), "a.npy", "2 inputs ('x', 'mask')", "numpy.savez")


@pytest.mark.parametrize("name", ["a.npy", "a.npz"])
def test_pickled_arrays_are_never_loaded(tmp_path: Path, name: str) -> None:
    save = np.save if name == "a.npy" else lambda path, array: np.savez(path, x=array)
    save(tmp_path / name, np.array([Bomb()], object))
    assert_says(refusal(tmp_path), f"{name}: ", "contains pickled Python objects", "never loaded")


@pytest.mark.parametrize("name", ["a.npy", "a.npz"])
def test_a_bare_pickle_is_never_loaded(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(pickle.dumps(Bomb()))
    assert_says(refusal(tmp_path), name, "broken or not an .np")


@pytest.mark.parametrize("name", ["a.npy", "a.npz"])
def test_every_cut_off_file_is_refused(tmp_path: Path, name: str) -> None:
    whole = io.BytesIO()
    if name.endswith("npz"):
        np.savez_compressed(whole, x=ONE)
    else:
        np.save(whole, ONE)
    for length in range(len(whole.getvalue())):
        (tmp_path / name).write_bytes(whole.getvalue()[:length])
        assert_says(refusal(tmp_path), f"{name}: ", "write the file again")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Reading `.npy`")  # numpy on headers that look like Python 2's
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data(), name=st.sampled_from(["a.npy", "a.npz"]))
def test_damaged_files_are_refused_or_read_but_never_crash(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, name: str
) -> None:
    folder = tmp_path_factory.mktemp("damaged")
    path = folder / name
    if name == "a.npy":
        np.save(path, ONE)
    else:
        np.savez_compressed(path, x=ONE)
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    with suppress(DataError):
        (sample,) = open_samples(str(path.parent), (X,))
        assert sample.arrays["x"].shape[1:] == (3,)
        assert sample.arrays["x"].dtype == np.float32


def test_something_else_in_an_npz_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as file:
        file.writestr("x", b"no array")
    assert_says(refusal(tmp_path), "a.npz: array 'x': is broken or not an .npz file", "write the file again")


def save_header(path: Path, header: str, *, claimed: int | None = None, version: int = 1) -> None:
    """Write a file whose header is this text, without elements; an .npz may claim to be longer than it is."""
    size = struct.pack("<H" if version == 1 else "<I", len(header) + 1)
    data = b"\x93NUMPY" + bytes((version, 0)) + size + header.encode() + b"\n"
    if path.suffix == ".npy":
        path.write_bytes(data)
        return
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("x.npy", data)
    if claimed is not None:  # in the directory at the end of the archive
        raw = bytearray(path.read_bytes())
        at = raw.rindex(b"PK\x01\x02") + 24
        raw[at : at + 4] = struct.pack("<I", claimed)
        path.write_bytes(raw)


def header_of(shape: str, dtype: str = "<f4") -> str:
    return f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}}}"


@pytest.mark.parametrize("name", ["a.npy", "a.npz"])
@pytest.mark.parametrize(
    ("header", "said"),
    [
        (header_of("(10000000000000, 3)"), "120000000000000 bytes, but 0 follow"),
        (header_of("(True, 3)"), "shape (True, 3)"),
        (header_of("(-1, 3)"), "shape (-1, 3)"),
        (header_of("(1, 3)", "|O"), "contains pickled Python objects"),
        (header_of("(1, 3)").ljust(20000), "Header info length"),
        (header_of("(1, 3"), "is broken or not an .np"),
        (header_of(f"({'9' * 400}, 3)"), "is broken or not an .np"),
        ("[" * 5000, "is broken or not an .np"),
        ("__import__('os').getcwd()", "(its header is not a type, an order and a shape)"),
        (header_of("(1 << 70,)"), "(its header is not a type, an order and a shape)"),
        ("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1, 3)}", "bytes, but 0 follow"),
    ],
)
@pytest.mark.filterwarnings("ignore:Reading `.npy`")
def test_a_header_that_cannot_be_right_is_refused_before_the_array_is_made(
    tmp_path: Path, name: str, header: str, said: str
) -> None:
    save_header(tmp_path / name, header)
    text = refusal(tmp_path)
    assert_says(text, tmp_path / name, said, "; ")
    assert "allow_pickle" not in text


def test_a_header_of_version_3_is_refused(tmp_path: Path) -> None:
    save_header(tmp_path / "a.npy", header_of("(1, 3)"), version=3)
    assert_says(refusal(tmp_path), "a.npy: has .npy version 3.0", "numpy.save")


def test_a_member_that_claims_more_than_it_can_hold_is_refused(tmp_path: Path) -> None:
    save_header(tmp_path / "a.npz", header_of("(100000000, 3)"), claimed=1200000200)
    assert_says(refusal(tmp_path), "a.npz: array 'x': is broken", "compressed bytes cannot be 1200000200")


def test_an_array_larger_than_the_memory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez(tmp_path / "a.npz", x=ONE)
    monkeypatch.setattr(array_files, "machine_bytes", lambda: 8.0)
    assert_says(refusal(tmp_path), "a.npz: array 'x': takes", "more than this machine's memory")


@pytest.mark.parametrize("name", ["a.npy", "a.npz"])
def test_an_array_that_does_not_fit_the_model_is_not_unpacked(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = np.zeros((1, 4), np.float32)
    np.save(tmp_path / name, large) if name == "a.npy" else np.savez_compressed(tmp_path / name, x=large)
    monkeypatch.setattr(np.lib.format, "read_array", lambda *_, **__: pytest.fail("was unpacked"))
    assert_says(refusal(tmp_path), f"{name}: input 'x': has shape (1, 4)", "fixes it at 3")


def test_a_file_that_may_not_be_read_says_so(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=ONE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            zipfile, "ZipFile", lambda _: (_ for _ in ()).throw(PermissionError(13, "Permission denied"))
        )
        assert_says(refusal(tmp_path), "a.npz: cannot be read: Permission denied; check the file")


def test_an_empty_dimension_that_is_no_batch_is_accepted(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros((1, 2, 0, 4), np.float32))
    spec = InputSpec("x", np.dtype(np.float32), ("N", 2, "past", 4))
    assert [s.arrays["x"].shape for s in open_samples(str(tmp_path), (spec,))] == [(1, 2, 0, 4)]


def test_fortran_order_is_the_same_array(tmp_path: Path) -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.save(tmp_path / "a.npy", np.asfortranarray(array))
    rows = [sample.arrays["x"] for sample in open_samples(str(tmp_path), (X,))]
    assert np.array_equal(np.concatenate(rows), array)


FIXED = InputSpec("x", np.dtype(np.float32), (1, 3))


def test_a_model_with_a_fixed_batch_of_1_takes_batches_that_are_run_by_row(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(6, dtype=np.float32).reshape(2, 3))
    (sample,) = open_samples(str(tmp_path), (FIXED,), by_row=True)
    rows = list(rows_of(sample, (FIXED,)))
    assert [row.name for row in rows] == ["a.npy[0]", "a.npy[1]"]
    assert [row.arrays["x"].tolist() for row in rows] == [[[0, 1, 2]], [[3, 4, 5]]]


def test_rows_do_not_free_other_dimensions(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.ones((2, 4), np.float32))
    with pytest.raises(DataError, match="dimension 1 is 4 and the model fixes it at 3"):
        list(open_samples(str(tmp_path), (FIXED,), by_row=True))


def test_an_npy_file_that_goes_on_is_refused(tmp_path: Path) -> None:
    with open(tmp_path / "a.npy", "wb") as file:
        np.save(file, ONE)
        np.save(file, ONE)
    assert_says(refusal(tmp_path), "a.npy: has more data after its array")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("import no_such_dependency", "package 'no_such_dependency', which is not here; install it into"),
        ("def feeds():\n    import no_such.part", "package 'no_such', which is not here; install it into"),
        ("def fedes():\n    return []", "has no function 'feeds'; define it. Did you mean 'fedes'?"),
        ("feeds = 3", "is of type int; name a function"),
        ("def feeds():\n    return 3", "returned an object of type int, expected an iterable of dicts"),
        ("def feeds():\n    return 1 / 0", "raised ZeroDivisionError: division by zero"),
        ("def feeds(path):\n    return []", "raised TypeError"),
        ("def feeds():\n    raise SystemExit(3)", "raised SystemExit: 3; repair"),
        ("def feeds():\n    raise type('Odd', (BaseException,), {})", "raised Odd; repair"),
        (
            "class Odd(Exception):\n    def __str__(self): return 1 / 0\n\ndef feeds():\n    raise Odd",
            "raised Odd, whose text cannot be shown; repair",
        ),
        ("def feeds():\n    yield 3", "[0]: yielded an object of type int, expected a dict"),
        ("def feeds():\n    yield {}", "[0]: input 'x' is missing"),
        (
            "def feeds():\n    yield {'x': np.zeros((1, 3))}",
            "[0]: input 'x': has type float64, expected float32",
        ),
        (
            "def feeds():\n    yield {'x': np.array([[1, None, 2]], object)}",
            "[0]: input 'x': contains Python objects, expected float32 of shape (N, 3)",
        ),
        (
            "def feeds():\n    yield {'x': np.zeros((1, 3), np.float32)}\n    raise OSError('disk on fire')",
            "[1]: raised OSError: disk on fire",
        ),
    ],
)
def test_functions_that_misbehave_are_refused(module: Any, body: str, said: str) -> None:
    assert_says(refusal(f"{module(body)}:feeds"), ":feeds", said)
    assert_says(refusal("no_such_module_here:feeds"), "no module 'no_such_module_here'", "PYTHONPATH")


def test_loading_a_function_leaves_the_import_path_as_it_was(module: Any) -> None:
    import sys

    before = list(sys.path)
    open_samples(f"{module('def feeds(): return []')}:feeds", (X,))
    assert sys.path == before


@pytest.mark.parametrize(
    ("shapes", "rows"), [([["n", 4]], True), ([[20, "n", 4]], False), ([None], True), ([[]], False)]
)
def test_outputs_that_begin_with_a_fixed_axis_hold_no_rows(shapes: list[list | None], rows: bool) -> None:
    letters = ir.Value(name="x", shape=ir.Shape(["letters"]), type=ir.TensorType(ir.DataType.FLOAT))
    outputs = [ir.Value(name="y", shape=None if shape is None else ir.Shape(shape)) for shape in shapes]
    model = ir.Model(ir.Graph([letters], outputs, nodes=[]), ir_version=10)
    assert has_rows(model) == rows
    specs = input_specs(model)
    found = sample_digests({"x": np.arange(5, dtype=np.float32)}, specs)
    assert len(found) == (5 if rows else 1)


def test_each_sample_is_in_a_batch_and_what_is_no_batch_stays_as_it_is() -> None:
    samples = [{"x": np.full((1, 2), n), "scale": np.ones(1)} for n in range(7)]
    specs = [InputSpec("x", np.dtype(float), (3, 2)), InputSpec("scale", np.dtype(float), (1,))]
    batches = batches_of_shape(samples, specs)
    assert [batch["x"][:, 0].tolist() for batch in batches] == [[0, 1, 2], [3, 4, 5], [6, 0, 1]]
    assert all(batch["scale"].shape == (1,) for batch in batches)
    free = [InputSpec("x", np.dtype(float), (None, 2)), specs[1]]
    assert [batch["x"][0, 0] for batch in batches_of_shape(samples, free)] == list(range(7))
    assert not batches_of_shape(samples, [InputSpec("x", np.dtype(float), (3, 4)), specs[1]])
