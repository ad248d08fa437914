"""`card` and `verify`: a record that travels with a quantized model, held against files or a newer card."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

from ...profiles.base.errors import ConfigError, ModelError
from ...profiles.samples.objects import DataSource, source_name
from ...profiles.samples.preprocessing import BUILT_IN
from ...profiles.samples.storage import is_url
from ..evaluation.card import Asked, Card, files_of, load_card, make_card, metric_of
from ..evaluation.evaluate import Evaluation
from ..evaluation.metrics.table import named_metric
from ..evaluation.metrics.user_functions import MetricFunction
from ..evaluation.options import Gate, Slack
from ..evaluation.regression import checks_of_newer
from ..evaluation.verification import (
    Check,
    Result,
    Verification,
    checks_of_files,
    checks_of_statements,
    checks_of_unread,
    checks_without_figures,
    repeatable_gate,
    same_bytes,
)
from ..model.files import ModelLike
from ..model.identity import model_id
from ..plan.provenance import model_fingerprint, read_provenance
from ..prepare.prepare import ModelFile, opened
from .evaluate import evaluate
from .keywords import CardKeywords, VerifyKeywords, checked_keywords
from .results import QuantizedLike, quantized_file
from .setting_keywords import MetricName
from .sources import LabelsLike, samples_of


def card(
    model: ModelLike,
    quantized: QuantizedLike,
    data: DataSource,
    *,
    labels: LabelsLike | None = None,
    metric: MetricName | str | MetricFunction | None = None,
    gate: Gate | None = None,
    **options: Unpack[CardKeywords],
) -> Card:
    """Compare a quantized model with the float one, and return a record of it that others can verify.

    `card.save("model.card.json")` writes it for `verify`, `card.save("README.md")` for people and model hubs.

    Args:
        model: the float model: path, `onnx.ModelProto` or `onnx_ir.Model`.
        quantized: the same, or the result of `quantize` or `tune`.
        data: samples, as in `profile`.
        labels: as in `evaluate`.
        metric: as in `evaluate`.
        gate: limits that the quantized model is held against; those that are missed stand on the card.
        options: those of `evaluate`, and `task` and `base_model`: what a model hub calls the task and the
            float model.

    Raises:
        ModelError, DataError, ConfigError: as in `evaluate`.
    """
    keywords = checked_keywords("card", options, CardKeywords)
    task, base_model = keywords.pop("task", ""), keywords.pop("base_model", "")
    with opened(model) as file, quantized_file(quantized) as other:
        evaluation = evaluate(file, other, data, labels=labels, metric=metric, gate=gate, **keywords)
        recipe = keywords.get("preprocess")
        asked = Asked(
            data=_shown(data),
            preprocess="" if recipe is None else Path(recipe).name,
            limit=keywords.get("limit"),
            labels="" if labels is None else _shown(labels),
            scored_output=keywords.get("scored_output"),
            class_axis=keywords.get("class_axis"),
            threads=keywords.get("threads", 1),
        )
        evaluation = _without_folder(evaluation)
        return make_card(file.path, other.path, evaluation, asked, task=task, base_model=base_model)


def _shown(source: object) -> str:
    """Return the name of data or labels without the folders that they are in, a matter of this machine."""
    if not isinstance(source, str | os.PathLike):
        return "data"
    name = source_name(samples_of(os.fspath(source), None))
    return name if is_url(name) else Path(name).name or name


def _without_folder(evaluation: Evaluation) -> Evaluation:
    """Return an evaluation whose metric, where it is a function of a file, is named without the folders."""
    if not evaluation.metric or named_metric(evaluation.metric) is not None:
        return evaluation
    name = Path(evaluation.metric).name
    return replace(
        evaluation, metric=name, metric_title=evaluation.metric_title.replace(evaluation.metric, name)
    )


def verify(
    card: Card | str | os.PathLike[str],
    quantized: QuantizedLike | Card,
    *,
    model: ModelLike | None = None,
    data: DataSource | None = None,
    labels: LabelsLike | None = None,
    metric: MetricName | str | MetricFunction | None = None,
    **options: Unpack[VerifyKeywords],
) -> Verification:
    """Hold a card against a quantized model, or against a newer card.

    Without samples the bytes of the files are compared, and what the model says of its origin. With samples
    and the float model everything is run again; a figure that differs by more than `slack`, other samples,
    and limits that were kept and are not any more, are named. Times are told, and refute nothing. With a card
    in the place of the model nothing is run: no score, SQNR, size or speed-up of this newer card may be worse
    by more than `slack`, whichever quantized model it is of.

    Args:
        card: its file, or the object.
        quantized: the model: path, `onnx.ModelProto` or `onnx_ir.Model`; or a newer card, or its file
            (`.json`).
        model: the float model.
        data: the samples of the card, as in `profile`; a built-in recipe of preprocessing, and how many of
            them are drawn, are read from the card.
        labels: their truth; scores are not checked without it where the card has it.
        metric: where it is a function of one's own: a card names it, but no code is run because of a card.
        options: `preprocess`, `transform`, `threads`, `provider`, `runtime` and `latency` as in `evaluate`,
            and `slack`.

    Raises:
        ConfigError: a card is none, or of another float model, other samples or truth than the newer one;
            samples without the float model, or beside a newer card.
        ModelError, DataError: the float model or the samples are unusable.
    """
    keywords = checked_keywords("verify", options, VerifyKeywords)
    slack = Slack(**keywords.pop("slack", {}))
    record, unread = (card, {}) if isinstance(card, Card) else load_card(card)
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
        raise ConfigError("data: needs the float model to be compared with; give --float MODEL.onnx")
    with quantized_file(quantized) as path:
        checks = list(checks_of_files("quantized model", record.quantized_model, files_of(path)))
        is_its_file = same_bytes(record.quantized_model, files_of(path))
        checks += _origin(record, path, is_its_file)
        checks += checks_of_unread(unread)
        if model is None:
            why = "give --float MODEL.onnx and --data DATA to measure again"
            return Verification(name, path.name, (*checks, *checks_without_figures(record, why)))
        with opened(model) as floats:
            assert record.evaluation.subject is not None
            own = model_fingerprint(model_id(floats.model, ""))
            fingerprints = record.evaluation.subject.float_model, own
            checks += checks_of_files("float model", record.float_model, files_of(floats), fingerprints)
            if data is None:
                why = "give --data DATA to measure again"
                return Verification(name, path.name, (*checks, *checks_without_figures(record, why)))
            unscored = _why_unscored(record, labels, metric)
            then, asked = record.evaluation, record.asked
            how: dict[str, Any] = {
                "limit": asked.limit,
                "scored_output": asked.scored_output,
                "class_axis": asked.class_axis,
                "threads": asked.threads,
                "runtime": then.runtime,
                "provider": then.provider,
                "latency": then.latency is not None,
            }
            if asked.preprocess.partition(":")[0] in BUILT_IN:
                how["preprocess"] = asked.preprocess
            try:
                now = evaluate(
                    floats,
                    path,
                    data,
                    labels=None if unscored else labels,
                    metric=None if unscored else metric or metric_of(record),
                    gate=repeatable_gate(then.gate, scored=not unscored),
                    **{**how, **keywords},
                )
            except ModelError as problem:
                if is_its_file:
                    raise
                said = record.headline()
                checks.append(Check("figures", "differs", said, "", f"cannot be measured: {problem}"))
                return Verification(name, path.name, tuple(checks))
            recipe = keywords.get("preprocess")
            found = make_card(
                floats.path,
                path.path,
                _without_folder(now),
                replace(
                    asked,
                    data=_shown(data),
                    labels=_shown(labels) if asked.labels and labels is not None else "",
                    preprocess=how.get("preprocess", "") if recipe is None else Path(recipe).name,
                    threads=keywords.get("threads", asked.threads),
                ),
                task="",
                base_model="",
            )
    checks += checks_of_statements(record, found, slack, unscored)
    return Verification(name, path.name, tuple(checks), now)


def _origin(record: Card, file: ModelFile, is_its_file: bool) -> list[Check]:
    """Return whether a model says the same of its origin as the card; [] where the bytes are the same."""
    said = record.evaluation.provenance
    if is_its_file or said is None:
        return []
    try:
        provenance = read_provenance(file.model)
    except ModelError as problem:
        return [Check("plan", "differs", said.plan[:16], "", f"cannot be read: {problem}")]
    plans = said.plan, "" if provenance is None else provenance.plan
    result: Result = "same" if plans[0] == plans[1] else "differs"
    return [Check("plan", result, f"digest {plans[0][:16]}", f"digest {plans[1][:16] or '-'}")]


def _why_unscored(record: Card, labels: LabelsLike | None, metric: object) -> str:
    """Return why scores cannot be measured again; "" where they can, or where the card has none."""
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
        return load_card(source)[0], Path(source).name
    return None
