"""The calibration runner: streams samples through a model and records what flows through its tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import onnxruntime as ort

from .accumulator import Accumulator, Summary, summarize
from .data_digest import data_id
from .errors import ConfigError, DataError, nearest
from .instrument import dtype_name, recorded_shape, resolved
from .profile import DataId, ModelId, Profile
from .samples import Sample, Samples, input_specs
from .session import RUNTIME_ERRORS, first_line, opened

Progress = Callable[[int, int | None], None]
"""Called with the number of samples done and, where known, their total."""

NON_FINITE = ("error", "skip")


@dataclass(frozen=True, eq=False)
class _Target:
    """A tensor to be profiled.

    Attributes:
        name: of the tensor.
        dtype: its element type.
        shape: its declared shape.
        maker: who makes it, for messages.
        source: graph output that holds it; None for a graph input.
    """

    name: str
    dtype: ir.DataType
    shape: ir.Shape | None
    maker: str
    source: str | None


def calibrate(
    model: ir.Model,
    samples: Samples | Iterable[Sample],
    model_id: ModelId,
    *,
    non_finite: str = "error",
    threads: int = 0,
    progress: Progress | None = None,
) -> Profile:
    """Run the model on all samples and return the profile of its floating-point activations.

    One onnxruntime session gives every activation as an output; each is counted where it lies and
    then forgotten. Order, grouping and number of the samples between calls do not matter:
    merged profiles of shards equal the profile of all. Shapes may differ between samples.

    Args:
        model: the prepared model; unchanged.
        samples: checked feeds, as `open_samples` gives them.
        model_id: identity of the model, to be recorded.
        non_finite: "error" stops at the first NaN or Inf; "skip" counts them and leaves them out of range
            and histogram.
        threads: threads inside an operator of onnxruntime; 0 for all cores.
        progress: called after each sample.

    Raises:
        ConfigError: `non_finite` is something else, or `threads` is negative.
        ModelError: onnxruntime cannot load the model.
        DataError: there are no samples, one makes the model fail, or (with "error") NaN or Inf appeared.
    """
    if non_finite not in NON_FINITE:
        raise ConfigError(
            f"non_finite '{non_finite}': must be one of {', '.join(NON_FINITE)}."
            f"{nearest(non_finite, NON_FINITE)}"
        )
    if threads < 0:
        raise ConfigError(f"threads {threads}: must not be negative; 0 takes all cores")
    specs = input_specs(model)
    tapped, targets = _tapped(model)
    fetched = [target.source for target in targets if target.source is not None]
    accumulators = [Accumulator(dtype_name(target.dtype)) for target in targets]
    total, data, done = getattr(samples, "total", None), DataId(), 0
    with opened(tapped, threads) as session:
        for sample in samples:
            arrays = _run(session, fetched, sample)
            for target, accumulator in zip(targets, accumulators, strict=True):
                array = sample.feed[target.name] if target.source is None else arrays.pop(target.source)
                summary = summarize(_countable(array))
                if non_finite == "error" and (summary.nan or summary.inf):
                    raise _not_finite(sample.name, target, summary, array.size)
                accumulator.add(summary, recorded_shape(target.shape, array.shape))
            data = data.merged(data_id(sample.feed, specs))
            done += 1
            if progress is not None:
                progress(done, total)
    if data.samples == 0:
        raise DataError(f"{getattr(samples, 'source', 'samples')}: there are no samples; give at least one")
    tensors = {target.name: a.profile() for target, a in zip(targets, accumulators, strict=True)}
    return Profile(model_id, data, tensors, tool=tool_name())


def tool_name() -> str:
    """Return name and version of this program, as files record them; no version when it is not installed."""
    try:
        return f"qprof {version('qprof-onnx')}"
    except PackageNotFoundError:
        return "qprof"


def _tapped(model: ir.Model) -> tuple[ir.Model, list[_Target]]:
    """Return a copy of the model with all activations as outputs, and where each of them is found."""
    copy = model.clone()
    values = {v.name: v for node in copy.graph for v in node.outputs if v.name}
    inputs = {v.name for v in copy.graph.inputs}
    there = {v.name for v in copy.graph.outputs}
    targets, added, casts = [], [], []
    for original, dtype in resolved(model):
        name = str(original.name)
        if name in inputs:
            targets.append(_Target(name, dtype, original.shape, f"graph input '{name}'", None))
            continue
        value = values[name]
        if dtype == ir.DataType.BFLOAT16:  # numpy knows none; float32 holds each of its values
            cast = ir.Node("", "Cast", [value], [ir.AttrInt64("to", int(ir.DataType.FLOAT))])
            value = cast.outputs[0]
            value.name = _free(f"{name}:float", values)
            values[value.name] = value
            casts.append(cast)
        if value.name not in there:
            added.append(value)
        targets.append(_Target(name, dtype, original.shape, _maker(original), str(value.name)))
    copy.graph.extend(casts)
    copy.graph.outputs.extend(added)
    return copy, targets


def _free(name: str, taken: Mapping[Any, object]) -> str:
    while name in taken:
        name += "_"
    return name


def _maker(value: ir.Value) -> str:
    node = value.producer()
    assert node is not None
    return f"{node.op_type} node '{node.name}'" if node.name else f"unnamed {node.op_type} node"


def _run(
    session: ort.InferenceSession, fetched: Sequence[str], sample: Sample
) -> dict[str, npt.NDArray[Any]]:
    """Return the named outputs for one sample. The arrays are onnxruntime's own memory, not copies."""
    if not fetched:  # onnxruntime would take an empty list for all outputs
        return {}
    try:
        feed = {name: _feedable(array) for name, array in sample.feed.items()}
        return dict(zip(fetched, session.run(list(fetched), feed), strict=True))
    except RUNTIME_ERRORS as error:
        raise DataError(
            f"sample {sample.name}: the model fails on it: {first_line(error)}; "
            "compare the sample with what the model was made for"
        ) from error


def _feedable(array: npt.NDArray[Any]) -> Any:
    """Return what onnxruntime takes; for bfloat16, which it does not know as a numpy type, its bits."""
    if array.dtype.name != "bfloat16":
        return array
    bits = np.ascontiguousarray(array).view(np.uint16)
    return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, int(ir.DataType.BFLOAT16))


def _countable(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the array in a type that numpy counts natively; bfloat16 becomes float32, exactly."""
    return array.astype(np.float32) if array.dtype.name == "bfloat16" else array


def _not_finite(sample: str, target: _Target, summary: Summary, size: int) -> DataError:
    found = " and ".join(
        f"{number} {what}" for number, what in ((summary.nan, "NaN"), (summary.inf, "Inf")) if number
    )
    return DataError(
        f"sample {sample}: tensor '{target.name}' ({target.maker}) holds {found} among {size} elements; "
        "repair the sample or the model, or count such values and leave them out with --non-finite skip"
    )
