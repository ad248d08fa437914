"""A float and a quantized model opened to run on the same samples."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...profiles.base.errors import ModelError
from ...profiles.readers.values import Sample
from ...profiles.runtime.providers import CPU
from ..differences.outputs import OutputSums
from ..runtime.runtimes import ExecutionPlace, Session
from ..runtime.sessions import Inputs, run


@dataclass(frozen=True)
class Pair:
    """A float and a quantized model, ready to run on the same samples.

    Attributes:
        float_name, quantized_name: what errors call them.
        float_session, quantized_session: their sessions.
        outputs: names, in the order of the float model.
        float_outputs: those of them that are floating-point.
        threads: threads inside an operator.
    """

    float_name: str
    quantized_name: str
    float_session: Session
    quantized_session: Session
    outputs: tuple[str, ...]
    float_outputs: tuple[str, ...]
    threads: int

    def run_float(self, inputs: Inputs, sample: str) -> dict[str, Any]:
        """Return the float model's outputs by name; raises as `run` does."""
        values = run(self.float_session, self.outputs, inputs, f"{self.float_name}, sample {sample}")
        return dict(zip(self.outputs, values, strict=True))

    def run_quantized(self, inputs: Inputs, sample: str) -> dict[str, Any]:
        """Return the quantized model's outputs by name; raises as `run` does."""
        values = run(self.quantized_session, self.outputs, inputs, f"{self.quantized_name}, sample {sample}")
        return dict(zip(self.outputs, values, strict=True))


HERE = ExecutionPlace("onnxruntime", CPU)
"""Where models are compared if nobody says otherwise."""


def open_pair(
    float_path: str | Path, quantized_path: str | Path, threads: int = 1, place: ExecutionPlace = HERE
) -> Pair:
    """Return both models, ready to run.

    Args:
        float_path, quantized_path: their files.
        threads: inside an operator.
        place: where they run.

    Raises:
        ModelError: one cannot be loaded, an output is not a tensor, or inputs or outputs of the two differ in
            name or in the kind of their elements.
    """
    a, b = str(float_path), str(quantized_path)
    floats, quantized = place.open(a, a, threads), place.open(b, b, threads)
    for what, mine, theirs in (
        ("input", floats.get_inputs(), quantized.get_inputs()),
        ("output", floats.get_outputs(), quantized.get_outputs()),
    ):
        _check_same(what, {i.name: i.type for i in mine}, {i.name: i.type for i in theirs}, a, b)
    outputs = floats.get_outputs()
    names = tuple(o.name for o in outputs)
    return Pair(
        a,
        b,
        floats,
        quantized,
        names,
        tuple(o.name for o in outputs if _element_kind(o.type) == "float"),
        threads,
    )


def measured_sqnr(
    float_path: str | Path, quantized_path: str | Path, samples: Iterable[Sample]
) -> dict[str, float]:
    """Return the SQNR in dB of each float output on samples; without those of which shapes differed.

    Raises:
        ModelError: a model cannot be loaded or run. DataError: a sample does not fit.
    """
    pair = open_pair(float_path, quantized_path)
    sums = {name: OutputSums() for name in pair.float_outputs}
    for sample in samples:
        floats = pair.run_float(sample.arrays, sample.name)
        quantized = pair.run_quantized(sample.arrays, sample.name)
        sums = {name: s.added(floats[name], quantized[name]) for name, s in sums.items()}
    results = [s.result(name) for name, s in sums.items()]
    return {r.name: r.difference.sqnr for r in results if r.difference and not r.shape_mismatches}


def _check_same(what: str, mine: Mapping[str, str], theirs: Mapping[str, str], a: str, b: str) -> None:
    for name in mine:
        if name not in theirs:
            raise ModelError(
                f"{b}: has no {what} '{name}', which {a} has; compare a model with its own quantized form"
            )
    for name in theirs:
        if name not in mine:
            raise ModelError(
                f"{b}: has {what} '{name}', which {a} has not; compare a model with its own quantized form"
            )
    for name, kind in mine.items():
        if not kind.startswith("tensor("):
            raise ModelError(f"{a}: {what} '{name}' is a {kind}; only tensors can be compared")
        if kind != theirs[name] and not (
            what == "output" and _element_kind(kind) == _element_kind(theirs[name])
        ):
            raise ModelError(
                f"{b}: {what} '{name}' is a {theirs[name]}, in {a} it is a {kind}; "
                "compare a model with its own quantized form"
            )


def _element_kind(type_text: str) -> str:
    """Return "float" for every floating-point tensor, and the type itself for others."""
    return (
        "float"
        if type_text in ("tensor(float)", "tensor(float16)", "tensor(double)", "tensor(bfloat16)")
        else type_text
    )
