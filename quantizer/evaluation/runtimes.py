"""Sessions and runs with the errors of qprof, and the runtimes that models can be compared in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Protocol, cast

import numpy as np
import numpy.typing as npt
import onnx
import onnx.numpy_helper
import onnx_ir as ir
import onnxruntime as ort

from ...profiles.base.errors import ConfigError, ModelError
from ...profiles.base.extras import OptionalModule
from ...profiles.base.output_files import temporary_folder
from ...profiles.runtime.external_weights import save_with_weights
from ...profiles.runtime.providers import (
    CPU,
    MAX_COPIED_BYTES,
    RUNTIME_ERRORS,
    check_provider,
    first_line,
    load_refusal,
    loaded_libraries,
    new_session,
    new_session_options,
)
from ..model.external_data import float_weight_bytes, has_few_bit_floats
from ..model.files import model_bytes
from ..model.saving import in_memory, save_model
from ..model.unread_types import UNREAD
from ..plan.formats import CACHES, CONSTANTS, FLOAT16
from ..plan.provenance import FLOAT_TYPE, borders_in

Inputs = Mapping[str, npt.NDArray[np.generic]]
"""The arrays of one sample by input name."""

MAX_THREADS = 256
"""More threads speed up no operator. onnxruntime starts all at once, and with thousands does not finish."""


DROPS_RELU = ("ReluQuantRewrite", "ClipQuantRewrite")
"""Optimizers of onnxruntime 1.32 that leave out a Relu or Clip before QuantizeLinear with zero point 0 as if
there were no quantized values below that: wrong for floating-point numbers of few bits, which have them."""


ROUNDS_BIAS = "WeightBiasQuantization"
"""Optimizer of onnxruntime 1.32 that divides a bias by two scales, in float16 where these are, and overflows:
a convolution before a Relu and floats of few bits in a file in float16. Runs here are of float32."""


def session_options(threads: int, float_bytes: int = 0, without: tuple[str, ...] = ()) -> ort.SessionOptions:
    """Return the options of every measured session; ConfigError for more threads than any machine has."""
    if not 0 <= threads <= MAX_THREADS:
        raise ConfigError(f"threads: {threads} is not 0 to {MAX_THREADS}; give the number of cores to use")
    options = new_session_options(float_bytes, without)
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4  # errors are raised, and say it in one line
    # Two sessions share the cores: the one that has just run must not go on spinning.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    return options


def open_session(
    model: str | bytes,
    name: str,
    threads: int = 1,
    options: ort.SessionOptions | None = None,
    provider: str = CPU,
    *,
    timed: bool = False,
    dequantized: bool = False,
) -> ort.InferenceSession:
    """Return a session with all graph optimisations of a model, a path or bytes without external data.

    Caches and borders of integers are float in it, constants without a kernel float32, and a model in float16
    rounds to that between nodes. If `timed`, large float weights are laid out for the kernels. If
    `dequantized`, form qdq is computed by float operators: the arithmetic of other runtimes except for ties.
    """
    if options is None:
        float_bytes = 0 if timed else _float_bytes(model, dequantized)
        without = DROPS_RELU if has_few_bit_floats(model) else ()
        options = session_options(threads, float_bytes, without)
        if dequantized:
            exact = session_options(threads, float_bytes, without)
            for as_written in (options, exact):
                as_written.add_session_config_entry("session.disable_quant_qdq", "1")
            exact.add_session_config_entry("session.x64quantprecision", "1")
            with suppress(ModelError):  # onnxruntime has no such kernel of QLinearMatMul for int8 activations
                return open_session(model, name, threads, exact, provider)
    if has_few_bit_floats(model, UNREAD):
        with temporary_folder() as folder:
            file = str(folder / "model.onnx")
            save_with_weights(CONSTANTS.load(name).with_floats(_read(model)), file)
            return open_session(file, name, threads, options, provider)
    try:
        session = new_session(model, options, provider)
    except RUNTIME_ERRORS as error:
        raise ModelError(load_refusal(name, error, loaded_libraries())) from error
    metadata, program = session.get_modelmeta().custom_metadata_map, session
    if FLOAT_TYPE in metadata and provider == CPU:
        with _as_given(FLOAT16.load("a model in float16").emulated(_read(model))) as rounded:
            session = new_session(rounded, options, provider)
    borders = stated_borders(metadata, (*session.get_inputs(), *session.get_outputs()))
    if any(value.type == INT8_TENSOR and value.name not in borders for value in session.get_inputs()):
        caches = CACHES.load(name).stored_caches(model)
        borders |= {name: FloatBorder(scale) for name, scale in caches.items()}
    if borders or (timed and program is not session):
        return cast(ort.InferenceSession, FloatBorders(session, borders, program))
    return session


def open_model(
    model: ir.Model, name: str, threads: int = 1, provider: str = CPU, *, dequantized: bool = False
) -> ort.InferenceSession:
    """Return a session of a model that is in no file; only a large one is written to one."""
    with _as_given(model) as given:
        return open_session(given, name, threads, provider=provider, dequantized=dequantized)


@contextmanager
def _as_given(model: ir.Model) -> Iterator[str | bytes]:
    """Yield the bytes of a model, or of a large one the path of a file that is there meanwhile."""
    whole = in_memory(model)
    if whole is not None:
        yield whole
        return
    with temporary_folder() as folder:
        save_model(model, folder / "model.onnx")
        yield str(folder / "model.onnx")


def stated_borders(metadata: Mapping[str, str], values: Iterable[Any]) -> dict[str, FloatBorder]:
    """Return the borders of a model by its metadata, given its inputs and outputs, which have a shape."""
    ranks = {value.name: len(value.shape) for value in values}
    borders = {}
    for name, params in borders_in(metadata).items():
        if name in ranks:
            after = ranks[name] - 1 - (params.axis or 0)
            scale = params.scale_array if params.axis is None else params.scale.reshape(-1, *[1] * after)
            borders[name] = FloatBorder(scale, int(params.zero_point[0]), params.qtype.name)
    return borders


def _float_bytes(model: str | bytes, dequantized: bool) -> int:
    """Return the bytes of the float weights that a session copies; 0 of a model that onnxruntime refuses."""
    if isinstance(model, bytes):  # without external data, and below the limit of a protobuf
        return 0
    try:
        return 4 * model_bytes(model) if dequantized else float_weight_bytes(model, MAX_COPIED_BYTES)
    except ModelError:
        return 0


def _read(model: str | bytes) -> ir.Model:
    return ir.load(model) if isinstance(model, str) else ir.from_proto(onnx.load_from_string(model))


def run(session: ort.InferenceSession, outputs: Sequence[str], inputs: Inputs, where: str) -> list[Any]:
    """Return the values of `outputs` for one sample; ModelErrors name `where`."""
    try:
        return list(session.run(list(outputs), dict(inputs)))
    except RUNTIME_ERRORS as error:
        runtime = getattr(session, "runtime_title", "onnxruntime")
        raise ModelError(
            f"{where}: {runtime} cannot run it: {first_line(error)}; check model and sample"
        ) from error


INT8_TENSOR, FLOAT_TENSOR = "tensor(int8)", "tensor(float)"
"""Types as onnxruntime writes them."""


@dataclass(frozen=True, eq=False)
class FloatBorder:
    """How an input or output that is integers becomes float: scale * (integer - zero_point)."""

    scale: npt.NDArray[np.float32] | np.float32  # broadcasts with the tensor
    zero_point: int = 0
    dtype: str = "int8"  # of the integers


class FloatBorders:
    """A session of a model with integers at its borders, which takes and returns them in float."""

    def __init__(
        self,
        session: ort.InferenceSession,
        borders: Mapping[str, FloatBorder],
        program: ort.InferenceSession | None = None,
    ) -> None:
        """`program` is the session of a program, if rounding to float16 makes this one differ."""
        self.session, self.borders, self.program = session, borders, program or session

    def __getattr__(self, name: str) -> Any:
        return getattr(self.session, name)

    def get_inputs(self) -> Sequence[Any]:
        """Return the inputs, integers as float."""
        return [self._as_float(value) for value in self.session.get_inputs()]

    def get_outputs(self) -> Sequence[Any]:
        """Return the outputs, integers as float."""
        return [self._as_float(value) for value in self.session.get_outputs()]

    def _as_float(self, value: Any) -> Any:
        if value.name not in self.borders:
            return value
        return SimpleNamespace(name=value.name, type=FLOAT_TENSOR, shape=value.shape)

    def run(self, output_names: Sequence[str] | None, inputs: Inputs, run_options: Any = None) -> list[Any]:
        """Return the values of outputs for the arrays of one sample by input name."""
        names = list(output_names or (value.name for value in self.session.get_outputs()))
        given = () if run_options is None else (run_options,)
        values = dict(zip(names, self.session.run(names, self.quantized(inputs), *given), strict=True))
        for name in values.keys() & self.borders.keys():
            border = self.borders[name]
            values[name] = (values[name].astype(np.float32) - np.float32(border.zero_point)) * border.scale
        return [values[name] for name in names]

    def quantized(self, inputs: Inputs) -> dict[str, npt.NDArray[np.generic]]:
        """Return the arrays of one sample as the model itself takes them, as QuantizeLinear makes them."""
        arrays = dict(inputs)
        for name in arrays.keys() & self.borders.keys():
            border = self.borders[name]
            ends = np.iinfo(border.dtype)
            steps = np.rint(arrays[name].astype(np.float32) / border.scale) + border.zero_point
            arrays[name] = np.clip(steps, ends.min, ends.max).astype(border.dtype)
        return arrays


def as_programs_run(session: Any, inputs: Sequence[Inputs]) -> tuple[Any, Sequence[Inputs]]:
    """Return a session to be timed, and its inputs: integers as a program hands them over, not converted."""
    if isinstance(session, FloatBorders):
        return session.program, [session.quantized(arrays) for arrays in inputs]
    return session, inputs


class Session(Protocol):
    """A model that is ready to run, as onnxruntime describes one."""

    def run(self, output_names: Sequence[str], inputs: Any) -> Sequence[Any]:
        """Return the values of outputs for the arrays of one sample by input name."""

    def get_inputs(self) -> Sequence[Any]:
        """Return the inputs, each with a name and a type."""

    def get_outputs(self) -> Sequence[Any]:
        """Return the outputs, each with a name and a type."""


OPENVINO = OptionalModule("runtime 'openvino'", "quantizer.plugins.other_runtimes.openvino")
"""Opens models in OpenVINO."""

RUNTIMES: Mapping[str, OptionalModule | None] = {"onnxruntime": None, "openvino": OPENVINO}
"""Every runtime that models can be compared in, with the module of a plug-in: `device` and `open_model`."""


@dataclass(frozen=True)
class ExecutionPlace:
    """Where models run: a key of `RUNTIMES`, and the full name of its execution provider or device."""

    runtime: str
    provider: str

    def open(self, path: str, name: str, threads: int, *, timed: bool = False) -> Session:
        """Return a session; `name` is the model's in messages, `timed` as in `open_session`."""
        module = RUNTIMES[self.runtime]
        if module is not None:
            session = module.load().open_model(path, name, threads, self.provider, timed)
        else:
            session = open_session(path, name, threads, provider=self.provider, timed=timed)
        return cast(Session, session)


def place_of(runtime: str, provider: str) -> ExecutionPlace:
    """Return the place of a runtime and a provider; ConfigError for one unknown, or not installed."""
    module = RUNTIMES[runtime]
    full = check_provider(provider) if module is None else str(module.load().device(provider))
    return ExecutionPlace(runtime, full)
