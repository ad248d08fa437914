"""The samples of a tuning: what they are judged by, and which of them are for the proof."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import onnxruntime as ort

from ...profiles.base.errors import ConfigError, DataError, ModelError, nearest
from ...profiles.records.profile import DataId
from ...profiles.samples.digest import data_id
from ...profiles.samples.functions import load_function, user_code
from ...profiles.samples.samples import InputSpec, Sample, open_samples
from ..evaluation.accuracy import load_labels
from ..runtime.sessions import run
from .scores import (
    Measure,
    Outputs,
    accuracy_measure,
    agreement,
    classes,
    has_answers,
    judge,
    metric_measure,
    noise,
)


@dataclass(frozen=True)
class Evidence:
    """What plans are judged by.

    Attributes:
        data: folder of samples, or "module:function".
        labels: file with the class of every row; top-1 accuracy is measured then.
        output: which output the labels belong to; the first when None.
        metric: "module:function", see `judging.metric_measure`.
        proof_data: other samples for the proof; None holds half of `data` out.
        proof_labels: their labels.
        limit: the first so many samples of each source only.
    """

    data: str
    labels: str | Path | None = None
    output: str | None = None
    metric: str | None = None
    proof_data: str | None = None
    proof_labels: str | Path | None = None
    limit: int | None = None


@dataclass(frozen=True, eq=False)
class JudgedSet:
    """Samples with the float model's outputs on them, all in memory.

    Attributes:
        samples: the feeds.
        indices: of each in the data.
        floats: outputs of the float model, in order.
        measure: gives the scores.
        measured: what is measured, for people.
        digest: identity of the data and of what it is judged by.
    """

    samples: tuple[Sample, ...]
    indices: tuple[int, ...]
    floats: tuple[Outputs, ...]
    measure: Measure
    measured: str
    digest: str

    def part(self, chosen: Sequence[int]) -> JudgedSet:
        """Return the samples at some positions."""
        return replace(
            self,
            samples=tuple(self.samples[i] for i in chosen),
            indices=tuple(self.indices[i] for i in chosen),
            floats=tuple(self.floats[i] for i in chosen),
        )


def outputs_of(session: ort.InferenceSession, samples: Sequence[Sample], name: str) -> list[Outputs]:
    """Return the outputs of a model on samples.

    Raises:
        ModelError: onnxruntime fails.
    """
    names = [output.name for output in session.get_outputs()]
    return [
        dict(zip(names, run(session, names, s.arrays, f"{name}, sample {s.name}"), strict=True))
        for s in samples
    ]


def read_evidence(
    session: ort.InferenceSession, specs: Sequence[InputSpec], evidence: Evidence, seed: int
) -> tuple[JudgedSet, JudgedSet, str]:
    """Return the samples for tuning, those for the proof, and a sentence about how they were told apart.

    Raises:
        ConfigError, DataError, ModelError: what is wrong with the evidence.
    """
    if (evidence.proof_labels is not None) != (
        evidence.proof_data is not None and evidence.labels is not None
    ):
        raise ConfigError("--proof-labels goes with --proof-data and --labels: give all three")
    whole = read_set(session, specs, evidence)
    if evidence.proof_data is None:
        first, second = halves(whole, seed)
        return (
            first,
            replace(second, digest=f"{second.digest}, the other half"),
            f"of each two consecutive samples one is held out for the proof, drawn with seed {seed}",
        )
    other = replace(evidence, data=evidence.proof_data, labels=evidence.proof_labels)
    proof = read_set(session, specs, other)
    if proof.digest == whole.digest:
        return whole, proof, "the proof is on the samples of the tuning"
    return whole, proof, f"the proof is on {evidence.proof_data}"


def read_set(session: ort.InferenceSession, specs: Sequence[InputSpec], evidence: Evidence) -> JudgedSet:
    """Read samples, run the float model on them and settle what is measured.

    Args:
        session: of the float model.
        specs: its inputs.
        evidence: the samples and what they are judged by; `proof_data` is not looked at.

    Raises:
        ConfigError: both labels and a metric. DataError: the data, the labels or the metric are wrong.
        ModelError: there is no such output, or it has no classes.
    """
    labels, metric, limit = evidence.labels, evidence.metric, evidence.limit
    if labels is not None and metric is not None:
        raise ConfigError("--labels and --metric exclude each other: a metric reads its own labels")
    samples = tuple(open_samples(evidence.data, specs, limit))
    if not samples:
        raise DataError(f"{evidence.data}: no samples; there is nothing to tune on")
    floats = tuple(outputs_of(session, samples, "float model"))
    measure: Measure
    if labels is not None:
        measure, measured = _by_labels(floats, labels, evidence.output, cut=len(samples) == limit)
    elif metric is not None:
        measure, measured = _by_function(metric), f"the metric {metric}"
    elif has_answers(floats[0]):
        measure, measured = agreement, "top-1 agreement with the float model"
    else:
        measure, measured = noise, "share of the outputs' energy that is not noise"
    indices = tuple(range(len(samples)))
    judge(measure, indices, floats, floats)  # what cannot be measured is told before anything is tried
    identity = DataId()
    for sample in samples:
        identity = identity.merged(data_id(sample.arrays, specs))
    truth = "" if labels is None else hashlib.sha256(load_labels(labels).tobytes()).hexdigest()[:16]
    digest = f"{identity.digest} {measured} {truth}".rstrip()
    return JudgedSet(samples, indices, floats, measure, measured, digest)


def _by_labels(
    floats: Sequence[Outputs], labels: str | Path, output: str | None, *, cut: bool
) -> tuple[Measure, str]:
    names = list(floats[0])
    if output is not None and output not in names:
        raise ModelError(f"the model has no output '{output}'.{nearest(output, names)}")
    judged = output or names[0]
    truth = load_labels(labels)
    starts, rows = [], 0
    for outputs in floats:
        starts.append(rows)
        rows += classes(outputs[judged], judged).size
    if rows > truth.size or (rows < truth.size and not cut):
        raise DataError(
            f"{labels}: {truth.size} labels, but the samples have {rows} rows; give one for each row"
        )
    return accuracy_measure(judged, truth, starts), f"top-1 accuracy of output '{judged}'"


def _by_function(metric: str) -> Measure:
    if ":" not in metric:
        raise ConfigError(f"--metric {metric}: name a Python function as module:function")
    function: Callable[..., object] = load_function(metric)

    def called(outputs: Sequence[Outputs], indices: Sequence[int]) -> object:
        with user_code(f"--metric {metric}"):
            return function(outputs, indices)

    return metric_measure(called, metric)


def halves(whole: JudgedSet, seed: int) -> tuple[JudgedSet, JudgedSet]:
    """Return two halves, for tuning and for the proof: of each two consecutive samples one goes to each.

    Which of the two goes where is drawn: data in a regular order (classes in turn) would split by class.

    Raises:
        DataError: there are fewer than two samples.
    """
    if len(whole.samples) < 2:
        raise DataError("one sample cannot be split into tuning and proof; give more, or --proof-data")
    draw = random.Random(seed)
    first: list[int] = []
    second: list[int] = []
    for begin in range(0, len(whole.samples) - 1, 2):
        swap = draw.random() < 0.5
        first.append(begin + swap)
        second.append(begin + (not swap))
    if len(whole.samples) % 2:
        second.append(len(whole.samples) - 1)
    return whole.part(first), whole.part(second)
