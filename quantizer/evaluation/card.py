"""A record that travels with a quantized model: what it is worth, and how to measure that again.

A card names its files by what is in them, and holds the evaluation that was made of them: anybody who has the
files and the samples can repeat it (`checks_of_files`, `checks_of_figures`).
"""

from __future__ import annotations

import hashlib
import html
import math
import os
import platform
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

import msgspec

from ...profiles.base.errors import ConfigError, MalformedError, ModelError
from ...profiles.base.json_values import parse_json
from ...profiles.base.output_files import read_bytes
from ...profiles.base.presentation import Presentation, Presented, Table, decibels, size_change, size_text
from ...profiles.base.strict_yaml import flow_text
from ...profiles.base.tool import tool_name
from ..model.external_data import external_files
from ..targets.machine import installed, processor
from .evaluate import Evaluation
from .metrics.score import score_text
from .metrics.table import named_metric
from .options import Gate, Slack

FORMAT = "qprof-card/1"


@dataclass(frozen=True)
class FileDigest:
    """A file by what is in it.

    Attributes:
        name: without its folder.
        bytes: its size.
        sha256: of its bytes, in hexadecimal digits.
    """

    name: str
    bytes: int
    sha256: str


def files_of(path: str | os.PathLike[str]) -> tuple[FileDigest, ...]:
    """Return the digests of a model's file and, by name, of the files that its external data is in.

    Of a file that is no model any more the digest is returned all the same.

    Raises:
        ModelError: the file cannot be read.
    """
    try:
        beside = sorted(external_files(path))
    except ModelError:
        beside = []
    digests = []
    for file in (Path(path), *beside):
        try:
            with file.open("rb") as stream:
                digest = hashlib.file_digest(stream, "sha256").hexdigest()
                digests.append(FileDigest(file.name, stream.tell(), digest))
        except OSError as problem:
            raise ModelError(f"{file}: cannot be read: {problem.strerror}; check the path") from problem
    return tuple(digests)


@dataclass(frozen=True)
class Machine:
    """Where the figures were measured.

    Attributes:
        processor: what it calls itself, and its instruction sets for int8.
        system: the operating system.
        runtime: the runtime that ran both models, with its version.
    """

    processor: str
    system: str
    runtime: str


def this_machine(runtime: str) -> Machine:
    """Return this machine, with the version of a runtime (a key of `runtimes.RUNTIMES`)."""
    here, versions = processor(), installed()
    version = versions.openvino if runtime == "openvino" else versions.onnxruntime
    name = f"{here.model} ({' '.join(here.features) or here.machine})"
    return Machine(name, f"{platform.system()} {platform.machine()}", f"{runtime} {version}")


@dataclass(frozen=True)
class Asked:
    """How the samples were read and the models were run: what a repetition needs besides the files.

    Attributes:
        data: name of the samples.
        preprocess: the recipe that made samples of files: a built-in one, or its file; "" for none.
        limit: how many of the samples were drawn; None for all.
        labels: name of the truth; "" without one.
        scored_output: the output that the truth belongs to; None for the first.
        class_axis: of its classes; None for what its operator says.
        threads: inside an operator.
    """

    data: str
    preprocess: str = ""
    limit: int | None = None
    labels: str = ""
    scored_output: str | None = None
    class_axis: int | None = None
    threads: int = 1


@dataclass(frozen=True, repr=False)
class Card(Presented):
    """What a quantized model was measured to be worth.

    Attributes:
        tool: name and version of the program that measured it.
        float_model, quantized_model: the digests of their files, that of external data after the model.
        machine: where it was measured.
        asked: on which samples, read how.
        evaluation: what was measured, with the limits that it was held against. Where the quantized model
            comes from (plan, profile, target) is its `provenance`, the samples are its `subject`.
        task: what a model hub calls the task, such as "image-classification"; "" where nobody said.
        base_model: what a model hub calls the float model; "" where nobody said.
    """

    tool: str
    float_model: tuple[FileDigest, ...]
    quantized_model: tuple[FileDigest, ...]
    machine: Machine
    asked: Asked
    evaluation: Evaluation
    task: str = ""
    base_model: str = ""

    def headline(self) -> str:
        """Return both models, and the worst SQNR of an output."""
        return self.evaluation.headline()

    def presentation(self) -> Presentation:
        """Return what the evaluation shows, and what identifies models and samples."""
        shown, subject = self.evaluation.presentation(), self.evaluation.subject
        facts = [
            ("float model", f"sha256 {self.float_model[0].sha256}"),
            ("quantized model", f"sha256 {self.quantized_model[0].sha256}"),
            ("data", f"{self.asked.data}, digest {subject.data if subject else '-'}"),
            ("machine", f"{self.machine.processor}, {self.machine.runtime}"),
        ]
        return Presentation((*shown.facts, *facts), shown.tables)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields, and the format."""
        return {"format": FORMAT, **super().to_dict()}

    def to_markdown(self) -> str:
        """Return the page of a model hub: front matter, then the figures, and how to repeat them."""
        return "\n".join((*_front_matter(self), *_page(self)))


def make_card(
    model: Path, quantized: Path, evaluation: Evaluation, asked: Asked, *, task: str, base_model: str
) -> Card:
    """Return the card of two models that were compared.

    Raises:
        ModelError: a file cannot be read.
    """
    here = this_machine(evaluation.runtime)
    return Card(tool_name(), files_of(model), files_of(quantized), here, asked, evaluation, task, base_model)


def load_card(path: str | os.PathLike[str]) -> Card:
    """Return the card in a file.

    Raises:
        ConfigError: it cannot be read, or is none.
    """
    try:
        document = parse_json(read_bytes(path, ConfigError).decode(errors="replace"))
        kind = document.get("format") if isinstance(document, dict) else None
        if kind != FORMAT:
            raise ConfigError(
                f"{path}: is no card: its format is {kind!r} and not '{FORMAT}'; give a file of 'qprof card'"
            )
        card = msgspec.convert(document, Card, strict=False)  # "inf" is a number
    except (MalformedError, msgspec.ValidationError) as problem:
        raise ConfigError(f"{path}: is no card ({problem}); make it anew with 'qprof card'") from problem
    if not card.float_model or not card.quantized_model or card.evaluation.subject is None:
        raise ConfigError(f"{path}: says nothing of models and samples; make it anew with 'qprof card'")
    return card


# The page of a model hub -----------------------------------------------------------------------------------


def _front_matter(card: Card) -> Iterator[str]:
    """Yield the metadata that a hub reads; results only with a task, without which it takes none."""
    accuracy, score, metric = card.evaluation.accuracy, card.evaluation.score, card.evaluation.metric
    value = accuracy.quantized_percent if accuracy else score.quantized_score if score else None
    yield "---"
    yield "library_name: onnx"
    if card.task:
        yield f"pipeline_tag: {flow_text(card.task)}"
    if card.base_model:
        yield f"base_model: {flow_text(card.base_model)}"
        yield "base_model_relation: quantized"
    yield "tags: [onnx, quantized, qprof]"
    if card.task and value is not None:
        kind = "accuracy" if metric in ("", "top-1") else metric.partition(":")[0]
        result = {"type": kind, "value": round(value, 4), "name": _score_name(card.evaluation)}
        dataset = {"name": card.asked.data, "type": card.asked.data}
        yield "model-index:"
        yield f"- name: {flow_text(card.quantized_model[0].name)}"
        yield "  results:"
        yield f"  - task: {flow_text({'type': card.task})}"
        yield f"    dataset: {flow_text(dataset)}"
        yield f"    metrics: [{flow_text(result)}]"
    yield "---"


def _score_name(evaluation: Evaluation) -> str:
    return evaluation.metric_title or "top-1 accuracy"


def _page(card: Card) -> Iterator[str]:
    """Yield the figures, the files by their digests, and the command that repeats the measurement."""
    evaluation, asked, machine = card.evaluation, card.asked, card.machine
    name, origin = _code(card.quantized_model[0].name), _code(card.float_model[0].name)
    samples = f"{evaluation.samples} samples of {_code(asked.data)}"
    yield f"\n# {name}\n"
    yield f"Quantized from {origin}. Both were run on {samples} by {card.tool}; what it found:\n"
    yield "| | float | quantized | |"
    yield "|---|---:|---:|---|"
    if evaluation.accuracy is not None:
        a = evaluation.accuracy
        gain, low, high = (0.0 - drop for drop in (a.drop, a.drop_high, a.drop_low))
        lost = f"{gain:+.2f} points, 95 % interval {low:+.2f} to {high:+.2f}, {a.rows} rows"
        yield f"| top-1 accuracy | {a.float_percent:.2f} % | {a.quantized_percent:.2f} % | {lost} |"
    if evaluation.score is not None:
        s = evaluation.score
        figures = [text.rsplit(" ", 1)[0] for text in score_text(s).split(", ")]
        interval = f"95 % interval {s.drop_low:.2f} to {s.drop_high:.2f}"
        yield (
            f"| {_text(_score_name(evaluation))} | {figures[0]} | {figures[1]} | "
            f"drop {s.drop:.2f} {s.drop_unit}, {interval}, {s.rows} scored |"
        )
    if evaluation.score_shift is not None:
        yield f"| scores | | | {_text(evaluation.score_shift.text)} |"
    for output in evaluation.outputs:
        ratio = "" if output.difference is None else f"{decibels(output.difference.sqnr)} dB"
        same = (
            ""
            if output.agreement is None
            else f"{100 * output.agreement.ratio:.2f} % of the answers the same"
        )
        yield f"| SQNR of output {_code(output.name)} | | {ratio} | {same} |"
    before, after = evaluation.float_bytes, evaluation.quantized_bytes
    yield f"| size | {size_text(before)} | {size_text(after)} | {size_change(before, after)} |"
    if evaluation.latency is not None:
        t = evaluation.latency
        threads = f"{t.threads} thread{'s' if t.threads > 1 else ''}"
        speed = f"{t.speedup:.2f} times as fast ({t.speedup_low:.2f} to {t.speedup_high:.2f}), {threads}"
        yield f"| time of a run | {t.float_ms:.3f} ms | {t.quantized_ms:.3f} ms | {speed} |"
    place = f"{_text(machine.processor)}, {machine.system}"
    yield f"\nMeasured with {machine.runtime} ({evaluation.provider}) on {place}.\n"
    if evaluation.gated:
        for limit in fields(Gate):
            bound = getattr(evaluation.gate, limit.name)
            if bound is not None:
                missed = [f for f in evaluation.failures if f.demand == limit.name]
                yield f"* limit {limit.name} {bound:g}: {missed[0].result if missed else 'kept'}"
        yield ""
    yield from (f"* {_text(remark)}" for remark in (*evaluation.doubts, *evaluation.remarks))
    yield "\n| | |\n|---|---|"
    for what, files in (("float model", card.float_model), ("quantized model", card.quantized_model)):
        for file in files:
            yield f"| {what}: {_code(file.name)} | sha256 {_code(file.sha256)}, {file.bytes} bytes |"
    assert evaluation.subject is not None
    yield f"| samples: {_code(asked.data)} | digest {_code(evaluation.subject.data)} |"
    if made := evaluation.provenance:
        digests = f"plan {_code(made.plan)}, profile {_code(made.profile)}"
        yield f"| made by {_text(made.tool)} for {_code(made.target)} | {digests} |"
    recipe = f" --preprocess {asked.preprocess}" if asked.preprocess else ""
    truth = f" --labels {asked.labels}" if asked.labels else ""
    yield "\nTo repeat it:\n\n```sh"
    yield (
        f"qprof verify CARD.json {card.quantized_model[0].name} --float {card.float_model[0].name} "
        f"--data {asked.data}{recipe}{truth}"
    )
    yield "```\n"


def _text(text: str) -> str:
    """Return a text that neither Markdown nor a table takes for markup."""
    return html.escape(" ".join(text.split()), quote=False).replace("|", "\\|").replace("*", "\\*")


def _code(text: str) -> str:
    return f"`{' '.join(text.split()).replace('`', chr(39)).replace('|', chr(92) + '|')}`"


# A card is checked against files and samples ---------------------------------------------------------------

Result = Literal["same", "differs", "not checked", "told"]
"""Result of a check: "told" is a difference that refutes nothing, such as another machine's time."""


@dataclass(frozen=True)
class Check:
    """One statement of a card, checked.

    Attributes:
        of: its subject, such as a file or a figure.
        result: of the check.
        card: what the card says.
        found: what was measured or computed now; "" where nothing was.
        reason: why it was not checked, or how far off it is; "" where the rest says it.
    """

    of: str
    result: Result
    card: str
    found: str = ""
    reason: str = ""


@dataclass(frozen=True, repr=False)
class Verification(Presented):
    """A card that was checked against files and samples.

    Attributes:
        card: its file.
        quantized_model: the file of the quantized model that it was checked against.
        checks: of its statements, those that could not be checked among them.
        evaluation: the one that was made now; None where nothing was measured.
    """

    card: str
    quantized_model: str
    checks: tuple[Check, ...]
    evaluation: Evaluation | None = None

    @property
    def passed(self) -> bool:
        """Whether nothing that was checked differs from what the card says."""
        return all(check.result != "differs" for check in self.checks)

    def headline(self) -> str:
        """Return how many statements hold."""
        counts = {r: sum(c.result == r for c in self.checks) for r in ("same", "differs", "not checked")}
        said = ", ".join(f"{count} {result}" for result, count in counts.items() if count)
        return f"{self.card} against {self.quantized_model}: {said}"

    def presentation(self) -> Presentation:
        """Return a table of the checks."""
        rows = tuple((c.of, c.result, c.card, c.found, c.reason) for c in self.checks)
        return Presentation((), (Table(("of", "result", "card", "found", "remark"), rows, left=5),))

    def to_dict(self) -> dict[str, Any]:
        """Return the fields, and `passed`."""
        return {**super().to_dict(), "passed": self.passed}


def checks_of_files(
    of: str,
    on_card: Sequence[FileDigest],
    of_files: Sequence[FileDigest],
    fingerprint: tuple[str, str] | None = None,
) -> Iterator[Check]:
    """Yield whether the files of a model are those of a card; their names do not matter.

    Args:
        of: which model.
        on_card, of_files: the digests on the card, and those of the files.
        fingerprint: of graph and weights, on the card and of the model: where these are the same, other bytes
            refute nothing; None where the bytes have to be the same.
    """
    same_graph = fingerprint is not None and fingerprint[0] == fingerprint[1]
    for number, file in enumerate(on_card):
        name = of if not number else f"{of}, {file.name}"
        digest = f"sha256 {file.sha256[:16]}"
        if number >= len(of_files):
            yield Check(name, "differs", digest, "", "there is no such file")
            continue
        other = of_files[number]
        result: Result = "same"
        reason = ""
        if file.sha256 != other.sha256:
            result, reason = "differs", "other bytes, of the same number"
            if file.bytes != other.bytes:
                reason = f"{other.bytes - file.bytes:+d} bytes"
            if same_graph:
                result, reason = "told", f"{reason}; graph and weights are the same"
        yield Check(name, result, digest, f"sha256 {other.sha256[:16]}", reason)
    for other in of_files[len(on_card) :]:
        yield Check(f"{of}, {other.name}", "differs", "", f"sha256 {other.sha256[:16]}", "not on the card")


MAX_SQNR_DB = 100.0
"""SQNR in dB above which two outputs differ by the order of float sums alone, and so by machine."""


def checks_of_figures(card: Card, now: Evaluation, slack: Slack, unscored: str) -> Iterator[Check]:
    """Yield whether what was measured now is what a card says.

    A figure that is better than on the card differs as well. A score may differ by a row besides the slack,
    as float sums of another processor may turn one. Times refute nothing, and neither do figures of other
    samples; limits hold for these too.

    Args:
        card: the card.
        now: the evaluation.
        slack: by how much figures may differ: score and sqnr of it.
        unscored: why scores were not measured; "" where they were.
    """
    then = card.evaluation
    assert now.subject is not None
    assert then.subject is not None
    same_data = now.subject.data == then.subject.data
    yield Check(
        "data",
        "same" if same_data else "differs",
        f"{then.samples} samples, digest {then.subject.data[:16]}",
        f"{now.samples} samples, digest {now.subject.data[:16]}",
        "" if same_data else "other samples, or read otherwise: see --preprocess",
    )
    if unscored:
        yield Check("truth", "not checked", f"digest {then.subject.metric}", "", unscored)
    elif then.subject.metric or now.subject.metric:
        same_truth = (then.metric, then.subject.metric) == (now.metric, now.subject.metric)
        yield Check(
            "truth",
            "same" if same_truth else "differs",
            f"digest {then.subject.metric or '-'}",
            f"digest {now.subject.metric or '-'}",
            "" if same_truth else "other labels, or other options of the metric",
        )
    measured = {o.name: o.difference.sqnr for o in now.outputs if o.difference is not None}
    figures = [
        _figure_check(
            f"SQNR of output '{output.name}'",
            output.difference.sqnr,
            measured.get(output.name),
            slack=slack.sqnr,
            unit=" dB",
            ceiling=MAX_SQNR_DB,
        )
        for output in then.outputs
        if output.difference is not None
    ]
    if not unscored:
        figures += _score_checks(then, now, slack)
    yield from figures if same_data else (replace(check, result="told") for check in figures)
    for limit in fields(Gate):  # each limit that the card says was kept has to be kept now
        bound = getattr(then.gate, limit.name)
        if bound is None:
            continue
        of = f"limit {limit.name} {bound:g}"
        before = [f for f in then.failures if f.demand == limit.name]
        after = [f for f in now.failures if f.demand == limit.name]
        on_card = before[0].result if before else "kept"
        if getattr(now.gate, limit.name) is None:
            reason = unscored if limit.name != "min_speedup" else "a time"
            yield Check(of, "not checked", on_card, "", reason)
            continue
        result = after[0].result if after else "kept"
        reason = ""
        if after and after[0].measured is None:
            reason = after[0].reason
        elif after:
            reason = " ".join(filter(None, (f"{after[0].missing:.2f}", after[0].unit, "off")))
        yield Check(of, "differs" if after and not before else "same", on_card, result, reason)
    if then.latency is None:
        return
    speed = f"{then.latency.speedup:.2f} times ({card.machine.processor}, {card.machine.runtime})"
    if now.latency is None:
        yield Check("speed", "not checked", speed, "", "latency was not measured")
        return
    here = this_machine(now.runtime)
    where = "" if here == card.machine else f" ({here.processor}, {here.runtime})"
    yield Check("speed", "told", speed, f"{now.latency.speedup:.2f} times{where}")


def _score_checks(then: Evaluation, now: Evaluation, slack: Slack) -> Iterator[Check]:
    """Yield whether both models have the scores of a card."""
    if then.accuracy is not None:
        a, b = then.accuracy, now.accuracy
        allowed = max(slack.score, 100.0 / a.rows)
        for of, on_card, measured in (
            ("float", a.float_percent, None if b is None else b.float_percent),
            ("quantized", a.quantized_percent, None if b is None else b.quantized_percent),
        ):
            yield _figure_check(f"accuracy of the {of} model", on_card, measured, slack=allowed, unit=" %")
    if then.score is not None:
        s, t = then.score, now.score
        row = 100.0 / s.rows if s.unit == "%" else 0.0
        for of, on_card, measured in (
            ("float", s.float_score, None if t is None else t.float_score),
            ("quantized", s.quantized_score, None if t is None else t.quantized_score),
        ):
            relative = s.drop_unit.startswith("%")
            allowed = abs(on_card) * slack.score / 100.0 if relative else max(slack.score, row)
            unit = f" {s.unit}" if s.unit else ""
            yield _figure_check(
                f"{then.metric} of the {of} model", on_card, measured, slack=allowed, unit=unit
            )


def _figure_check(
    of: str, on_card: float, measured: float | None, *, slack: float, unit: str, ceiling: float = math.inf
) -> Check:
    """Return whether a figure is that of a card, within a slack; above the ceiling all are the same.

    Args:
        of: the name of the figure.
        on_card: its value there.
        measured: its value now; None where it could not be measured.
        slack: how far apart they may be.
        unit: of both.
        ceiling: above which figures do not differ.
    """
    if measured is None:
        return Check(of, "differs", f"{on_card:.2f}{unit}", "", "could not be measured")
    a, b = min(on_card, ceiling), min(measured, ceiling)
    off = 0.0 if a == b else b - a
    is_same = abs(off) <= slack + 1e-9
    return Check(
        of,
        "same" if is_same else "differs",
        f"{on_card:.2f}{unit}",
        f"{measured:.2f}{unit}",
        "" if is_same else f"{off:+.2f}{unit}",
    )


def repeatable_gate(gate: Gate, *, scored: bool) -> Gate:
    """Return the limits that a repetition is held against: no times, and scores where it has them."""
    kept = replace(gate, min_speedup=None)
    return kept if scored else replace(kept, max_accuracy_drop=None, max_drop=None, min_score=None)


def metric_of(card: Card) -> str | None:
    """Return the metric that a card was made with; None for none, and for a function, which is code."""
    name = card.evaluation.metric
    return name if name and named_metric(name) is not None else None
