"""`card` and `verify`: a record that travels with a quantized model, held against files or a newer card."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ....profiles.base.arguments import checks_arguments
from ....profiles.base.errors import ConfigError, ModelError
from ....profiles.samples.objects import DataSource, source_name
from ....profiles.samples.preprocessing import BUILT_IN
from ....profiles.samples.storage import is_url
from ...api.evaluate import compare
from ...api.keywords import with_keywords
from ...api.made_from import made_from
from ...api.options import OF_RUNS
from ...api.results import QuantizedLike, quantized_file
from ...api.sources import samples_of, with_metric_of_labels
from ...evaluation.evaluate import Evaluation
from ...evaluation.metrics.table import named_metric
from ...evaluation.metrics.truth import LabelsLike
from ...evaluation.metrics.user_functions import MetricFunction
from ...evaluation.options import Judge
from ...model.files import ModelLike
from ...model.identity import model_id
from ...plan.provenance import model_fingerprint, read_provenance
from ...prepare.prepare import ModelFile, opened
from .options import Slack
from .record import Asked, Card, files_of, load_card, make_card, metric_of
from .regression import checks_of_newer
from .verification import (
    Check,
    Result,
    Verification,
    checks_of_files,
    checks_of_statements,
    checks_without_figures,
    repeatable_gate,
    same_bytes,
)

if TYPE_CHECKING:
    from ...evaluation.options import RuntimeName


@checks_arguments
def card(
    model: ModelLike,
    quantized: QuantizedLike,
    data: DataSource,
    judge: Judge | None = None,
    **keywords: Any,
) -> Card:
    """Compare a quantized model with the float one, and return a record of it that others can verify.

    `card.save("model.card.json")` writes it for `verify`, `card.save("README.md")` for people and model hubs.

    Args:
        model: the float model: path, `onnx.ModelProto` or `onnx_ir.Model`.
        quantized: the same, or the result of `quantize` or `tune`.
        data: samples, as in `profile`.
        judge: as in `evaluate`; limits that are missed stand on the card.
        keywords: fields of `Judge`.

    Raises:
        ModelError, DataError, ConfigError: as in `evaluate`.
    """
    judge = with_metric_of_labels(with_keywords("card", judge or Judge(), keywords))
    with opened(model) as file, quantized_file(quantized) as other:
        samples = samples_of(data, judge.transform, judge.preprocess, judge.labels)
        evaluation = compare(file, other, samples, judge, made_from(quantized, other, file))
        return card_of(evaluation, file.path, other.path, data, judge)


def card_of(evaluation: Evaluation, model: Path, quantized: Path, data: DataSource, judge: Judge) -> Card:
    """Return the card of two models that were compared."""
    recipe, labels = judge.preprocess, judge.labels
    asked = Asked(
        data=_shown(data),
        preprocess="" if recipe is None else Path(recipe).name,
        limit=judge.limit,
        labels="" if labels is None else _shown(labels),
        scored_output=judge.scored_output,
        class_axis=judge.class_axis,
        threads=judge.threads,
    )
    return make_card(model, quantized, _without_folder(evaluation), asked)


def _shown(source: object) -> str:
    """Return the name of data or labels without the folders that they are in, a matter of this machine."""
    if not isinstance(source, str | os.PathLike):
        return "data"
    name = source_name(samples_of(os.fspath(source), None))
    return name if is_url(name) else Path(name).name or name


def _without_folder(evaluation: Evaluation) -> Evaluation:
    """Return an evaluation without its verdict; a metric that is a function of a file without its folders."""
    evaluation = Evaluation(**{one.name: getattr(evaluation, one.name) for one in fields(Evaluation)})
    if not evaluation.metric or named_metric(evaluation.metric) is not None:
        return evaluation
    name = Path(evaluation.metric).name
    return replace(
        evaluation, metric=name, metric_title=evaluation.metric_title.replace(evaluation.metric, name)
    )


OF_VERIFICATION = OF_RUNS | {"runtime", "latency"}
"""Fields of `Judge` that override how both models are run according to the card."""


@checks_arguments
def verify(
    card: Card | str | os.PathLike[str],
    quantized: QuantizedLike | Card,
    *,
    model: ModelLike | None = None,
    data: DataSource | None = None,
    labels: LabelsLike | None = None,
    metric: str | MetricFunction | None = None,
    slack: Slack | Mapping[str, float] | None = None,
    **keywords: Any,
) -> Verification:
    """Hold a card against a quantized model, or against a newer card.

    Without samples, this compares the bytes of the files, and the origin stored in the model. With samples
    and the float model, it measures everything again, and lists figures that differ by more than `slack`,
    other samples, and limits that are no longer met. Times are reported, but refute nothing. With a newer
    card in place of the model, nothing is run: score, SQNR, size and speedup of that card, which may be of
    another quantized model, must not be worse by more than `slack`.

    Args:
        card: its file, or the object.
        quantized: the model: path, `onnx.ModelProto` or `onnx_ir.Model`; or a newer card, or its file
            (`.json`).
        model: the float model.
        data: the samples of the card, as in `profile`; a built-in recipe of preprocessing, and how many of
            them are drawn, are read from the card.
        labels: their labels; without them, scores on the card are not checked.
        metric: your own metric function: a card names it, but never runs code.
        slack: how much a score, an SQNR, a size and a speed-up may differ.
        keywords: how both models are run, fields of `Judge`: `preprocess`, `transform`, `limit`, `threads`,
            `provider`, `runtime`, `latency`, `progress`. Default: as on the card.

    Raises:
        ConfigError: an invalid card, or a newer card with another float model, other samples or labels;
            samples without the float model, or beside a newer card.
        ModelError, DataError: the float model or the samples are unusable.
    """
    run = with_keywords("verify", Judge(), keywords, only=OF_VERIFICATION, besides=("slack",))
    slack = slack if isinstance(slack, Slack) else with_keywords("slack", Slack(), slack or {})
    record = card if isinstance(card, Card) else load_card(card)
    name = "card" if isinstance(card, Card) else Path(card).name
    if (card_and_name := _newer_card(quantized)) is not None:
        given = {"model": model, "data": data, "labels": labels, "metric": metric, **keywords}
        for option in (name for name, value in given.items() if value is not None and name != "progress"):
            raise ConfigError(f"{option}: a newer card is compared as it was measured; leave it out")
        newer, newer_name = card_and_name
        checks = list(checks_of_newer(record, newer, slack, (name, newer_name)))
        return Verification(name, newer_name, tuple(checks), newer.evaluation)
    assert not isinstance(quantized, Card)
    if data is not None and model is None:
        raise ConfigError("data: needs the float model to be compared with; give --model MODEL.onnx")
    with quantized_file(quantized) as path:
        checks = list(checks_of_files("quantized model", record.quantized_model, files_of(path)))
        is_its_file = same_bytes(record.quantized_model, files_of(path))
        checks += _origin(record, path)
        if model is None:
            why = "give --model MODEL.onnx and --data DATA to measure again"
            return Verification(name, path.name, (*checks, *checks_without_figures(record, why)))
        with opened(model) as floats:
            own = model_fingerprint(model_id(floats.model, ""))
            fingerprints = record.evaluation.subject["float_model"], own
            checks += checks_of_files("float model", record.float_model, files_of(floats), fingerprints)
            if data is None:
                why = "give --data DATA to measure again"
                return Verification(name, path.name, (*checks, *checks_without_figures(record, why)))
            unscored = _why_unscored(record, labels, metric)
            then, asked = record.evaluation, record.asked
            is_built_in = asked.preprocess.partition(":")[0] in BUILT_IN
            as_then = replace(
                run,
                limit=asked.limit,
                scored_output=asked.scored_output,
                class_axis=asked.class_axis,
                threads=asked.threads,
                runtime=cast("RuntimeName", then.runtime),
                provider=then.provider,
                latency=None if then.latency is None else run.latency,
                preprocess=asked.preprocess if is_built_in else None,
                labels=None if unscored else labels,
                metric=None if unscored else metric or metric_of(record),
            )
            judge = with_keywords("verify", as_then, keywords, only=OF_VERIFICATION)
            gate = repeatable_gate(then.gate, scored=not unscored, timed=judge.latency is not None)
            judge = replace(judge, gate=gate)
            try:
                samples = samples_of(data, judge.transform, judge.preprocess, judge.labels)
                now = compare(floats, path, samples, judge, made_from(quantized, path, floats))
            except ModelError as problem:
                if is_its_file:
                    raise
                said = record.headline()
                checks.append(Check("figures", "differs", said, "", f"cannot be measured: {problem}"))
                return Verification(name, path.name, tuple(checks))
            recipe = judge.preprocess
            found = make_card(
                floats.path,
                path.path,
                _without_folder(now),
                replace(
                    asked,
                    data=_shown(data),
                    labels=_shown(labels) if asked.labels and labels is not None else "",
                    preprocess="" if recipe is None else Path(recipe).name,
                    threads=judge.threads,
                ),
            )
    checks += checks_of_statements(record, found, slack, unscored)
    return Verification(name, path.name, tuple(checks), now)


def _origin(record: Card, file: ModelFile) -> Iterator[Check]:
    """Yield whether a model says the same of its origin as the card."""
    said = record.evaluation.provenance
    if said is None:
        return
    digest = f"digest {said.plan[:16]}"
    try:
        found = read_provenance(file.model)
    except ModelError as problem:
        yield Check("plan", "differs", digest, "", f"cannot be read: {problem}")
        return
    result: Result = "same" if found == said else "differs"
    yield Check("plan", result, digest, f"digest {'-' if found is None else found.plan[:16]}")


def _why_unscored(record: Card, labels: LabelsLike | None, metric: object) -> str:
    """Return why scores cannot be measured again, or "" if they can or the card has no score."""
    then = record.evaluation
    if then.metric and metric_of(record) is None and metric is None:
        return f"metric '{then.metric}' is code; give it with --metric to run it"
    if record.asked.labels and labels is None:
        return "give --labels FILE to score again"
    return ""


def _newer_card(source: QuantizedLike | Card) -> tuple[Card, str] | None:
    """Return the card that is given in the place of a model, and its name; None for a model."""
    if isinstance(source, Card):
        return source, "newer card"
    if isinstance(source, str | os.PathLike) and Path(source).suffix == ".json":
        return load_card(source), Path(source).name
    return None
