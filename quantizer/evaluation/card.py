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
from .latency import Latency
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
        found = parse_json(read_bytes(path, ConfigError).decode(errors="replace"))
        kind = found.get("format") if isinstance(found, dict) else None
        if kind != FORMAT:
            raise ConfigError(
                f"{path}: is no card: its format is {kind!r} and not '{FORMAT}'; give a file of 'qprof card'"
            )
        card = msgspec.convert(found, Card, strict=False)  # "inf" is a number
    except (MalformedError, msgspec.ValidationError) as problem:
        raise ConfigError(f"{path}: is no card ({problem}); make it anew with 'qprof card'") from problem
    if not card.float_model or not card.quantized_model or card.evaluation.subject is None:
        raise ConfigError(f"{path}: says nothing of models and samples; make it anew with 'qprof card'")
    return card


# The page of a model hub -----------------------------------------------------------------------------------


def _front_matter(card: Card) -> Iterator[str]:
    """Yield the metadata that a hub reads; results only with a task, without which it takes none."""
    found = card.evaluation
    score, kind = (found.score or found.accuracy), ""
    if score is not None:
        kind = "accuracy" if found.metric in ("", "top-1") else found.metric.partition(":")[0]
    yield "---"
    yield "library_name: onnx"
    if card.task:
        yield f"pipeline_tag: {flow_text(card.task)}"
    if card.base_model:
        yield f"base_model: {flow_text(card.base_model)}"
        yield "base_model_relation: quantized"
    yield "tags: [onnx, quantized, qprof]"
    if card.task and score is not None:
        value = found.accuracy.quantized_percent if found.accuracy else found.score.quantized_score  # type: ignore[union-attr]
        result = {"type": kind, "value": round(value, 4), "name": _score_name(found)}
        dataset = {"name": card.asked.data, "type": card.asked.data}
        yield "model-index:"
        yield f"- name: {flow_text(card.quantized_model[0].name)}"
        yield "  results:"
        yield f"  - task: {flow_text({'type': card.task})}"
        yield f"    dataset: {flow_text(dataset)}"
        yield f"    metrics: [{flow_text(result)}]"
    yield "---"


def _score_name(found: Evaluation) -> str:
    return found.metric_title or "top-1 accuracy"


def _page(card: Card) -> Iterator[str]:
    found, asked, machine = card.evaluation, card.asked, card.machine
    name, origin = _code(card.quantized_model[0].name), _code(card.float_model[0].name)
    samples = f"{found.samples} samples of {_code(asked.data)}"
    yield f"\n# {name}\n"
    yield f"Quantized from {origin}. Both were run on {samples} by {card.tool}; what it found:\n"
    yield "| | float | quantized | |"
    yield "|---|---:|---:|---|"
    if found.accuracy is not None:
        a = found.accuracy
        gain, low, high = (0.0 - drop for drop in (a.drop, a.drop_high, a.drop_low))
        lost = f"{gain:+.2f} points, 95 % interval {low:+.2f} to {high:+.2f}, {a.rows} rows"
        yield f"| top-1 accuracy | {a.float_percent:.2f} % | {a.quantized_percent:.2f} % | {lost} |"
    if found.score is not None:
        s = found.score
        figures = [text.rsplit(" ", 1)[0] for text in score_text(s).split(", ")]
        interval = f"95 % interval {s.drop_low:.2f} to {s.drop_high:.2f}"
        yield (
            f"| {_text(_score_name(found))} | {figures[0]} | {figures[1]} | "
            f"drop {s.drop:.2f} {s.drop_unit}, {interval}, {s.rows} scored |"
        )
    if found.score_shift is not None:
        yield f"| scores | | | {_text(found.score_shift.text)} |"
    for output in found.outputs:
        ratio = "" if output.difference is None else f"{decibels(output.difference.sqnr)} dB"
        same = (
            ""
            if output.agreement is None
            else f"{100 * output.agreement.ratio:.2f} % of the answers the same"
        )
        yield f"| SQNR of output {_code(output.name)} | | {ratio} | {same} |"
    smaller = size_change(found.float_bytes, found.quantized_bytes)
    yield f"| size | {size_text(found.float_bytes)} | {size_text(found.quantized_bytes)} | {smaller} |"
    if found.latency is not None:
        t = found.latency
        yield f"| time of a run | {t.float_ms:.3f} ms | {t.quantized_ms:.3f} ms | {_speed_text(t)} |"
    place = f"{_text(machine.processor)}, {machine.system}"
    yield f"\nMeasured with {machine.runtime} ({found.provider}) on {place}.\n"
    if found.gated:
        for limit in fields(Gate):
            bound = getattr(found.gate, limit.name)
            if bound is not None:
                missed = [f for f in found.failures if f.demand == limit.name]
                yield f"* limit {limit.name} {bound:g}: {missed[0].result if missed else 'kept'}"
        yield ""
    yield from (f"* {_text(remark)}" for remark in (*found.doubts, *found.remarks))
    yield "\n| | |\n|---|---|"
    for what, files in (("float model", card.float_model), ("quantized model", card.quantized_model)):
        for file in files:
            yield f"| {what}: {_code(file.name)} | sha256 {_code(file.sha256)}, {file.bytes} bytes |"
    assert found.subject is not None
    yield f"| samples: {_code(asked.data)} | digest {_code(found.subject.data)} |"
    if made := found.provenance:
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


def _speed_text(t: Latency) -> str:
    threads = f"{t.threads} thread{'s' if t.threads > 1 else ''}"
    return f"{t.speedup:.2f} times as fast ({t.speedup_low:.2f} to {t.speedup_high:.2f}), {threads}"


# What is held against a card -------------------------------------------------------------------------------

Result = Literal["same", "differs", "not checked", "told"]
"""What a check found: "told" is a difference that refutes nothing, such as another machine's time."""


@dataclass(frozen=True)
class Check:
    """One statement of a card, held against what was found.

    Attributes:
        of: what it is about.
        result: what came of it.
        card: what the card says.
        found: what was found; "" where nothing was looked at.
        reason: why it was not checked, or how far off it is; "" where the rest says it.
    """

    of: str
    result: Result
    card: str
    found: str = ""
    reason: str = ""


@dataclass(frozen=True, repr=False)
class Verification(Presented):
    """A card that was held against files and samples.

    Attributes:
        card: its file.
        quantized_model: the file that it was held against.
        checks: what was checked, and what was not.
        evaluation: what was measured now; None where nothing was.
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
    said: Sequence[FileDigest],
    found: Sequence[FileDigest],
    fingerprint: tuple[str, str] | None = None,
) -> Iterator[Check]:
    """Yield whether the files of a model are those of a card; their names do not matter.

    Args:
        of: which model.
        said, found: digests on the card, and of the files.
        fingerprint: of graph and weights, on the card and of the model: where these are the same, other bytes
            are told only; None where the bytes have to be the same.
    """
    for number, file in enumerate(said):
        name = of if not number else f"{of}, {file.name}"
        if number >= len(found):
            yield Check(name, "differs", f"sha256 {file.sha256[:16]}", "", "there is no such file")
            continue
        other = found[number]
        same = file.sha256 == other.sha256
        alike = fingerprint is not None and fingerprint[0] == fingerprint[1]
        if same:
            reason = ""
        elif file.bytes != other.bytes:
            reason = f"{other.bytes - file.bytes:+d} bytes"
        else:
            reason = "other bytes, of the same number"
        if alike and not same:
            reason = f"{reason}; graph and weights are the same"
        result: Result = "same" if same else "told" if alike else "differs"
        yield Check(name, result, f"sha256 {file.sha256[:16]}", f"sha256 {other.sha256[:16]}", reason)
    for other in found[len(said) :]:
        yield Check(f"{of}, {other.name}", "differs", "", f"sha256 {other.sha256[:16]}", "not on the card")


EXACT = 100.0
"""SQNR in dB above which two outputs differ by the order of float sums alone, and so by machine."""


def checks_of_figures(card: Card, now: Evaluation, slack: Slack, unscored: str) -> Iterator[Check]:
    """Yield whether what was measured now is what a card says.

    A figure that is better than on the card is another one as well. A score may differ by a row besides the
    slack, as float sums of another processor may turn one. Times are told, and so are figures of other
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
    figures = [*_checks_of_sqnr(then, now, slack), *(() if unscored else _checks_of_scores(then, now, slack))]
    for check in figures:
        measured = check.result != "not checked"
        yield replace(check, result="told") if measured and not same_data else check
    yield from _checks_of_gates(then, now, unscored)
    if then.latency is None:
        return
    told = f"{then.latency.speedup:.2f} times ({card.machine.processor}, {card.machine.runtime})"
    if now.latency is None:
        yield Check("speed", "not checked", told, "", "latency was not measured")
        return
    here = this_machine(now.runtime)
    there = "" if here == card.machine else f" ({here.processor}, {here.runtime})"
    yield Check("speed", "told", told, f"{now.latency.speedup:.2f} times{there}")


def _checks_of_sqnr(then: Evaluation, now: Evaluation, slack: Slack) -> Iterator[Check]:
    """Yield whether each float output has the SQNR of a card."""
    measured = {o.name: o.difference.sqnr for o in now.outputs if o.difference is not None}
    for output in then.outputs:
        if output.difference is not None:
            of, found = f"SQNR of output '{output.name}'", measured.get(output.name)
            yield _figure(of, output.difference.sqnr, found, slack=slack.sqnr, unit=" dB", ceiling=EXACT)


def _checks_of_scores(then: Evaluation, now: Evaluation, slack: Slack) -> Iterator[Check]:
    """Yield whether both models have the scores of a card."""
    if then.accuracy is not None:
        a, b = then.accuracy, now.accuracy
        allowed = max(slack.score, 100.0 / a.rows)
        for of, said, found in (
            ("float", a.float_percent, None if b is None else b.float_percent),
            ("quantized", a.quantized_percent, None if b is None else b.quantized_percent),
        ):
            yield _figure(f"accuracy of the {of} model", said, found, slack=allowed, unit=" %")
    if then.score is not None:
        s, t = then.score, now.score
        row = 100.0 / s.rows if s.unit == "%" else 0.0
        for of, said, found in (
            ("float", s.float_score, None if t is None else t.float_score),
            ("quantized", s.quantized_score, None if t is None else t.quantized_score),
        ):
            relative = s.drop_unit.startswith("%")
            allowed = abs(said) * slack.score / 100.0 if relative else max(slack.score, row)
            unit = f" {s.unit}" if s.unit else ""
            yield _figure(f"{then.metric} of the {of} model", said, found, slack=allowed, unit=unit)


def _figure(
    of: str, said: float, found: float | None, *, slack: float, unit: str, ceiling: float = math.inf
) -> Check:
    """Return whether a figure is that of a card, within a slack; above the ceiling all are the same.

    Args:
        of: what it is.
        said: on the card.
        found: measured now; None where it could not be.
        slack: how far apart they may be.
        unit: of both.
        ceiling: above which figures are not told apart.
    """
    card = f"{said:.2f}{unit}"
    if found is None:
        return Check(of, "differs", card, "", "could not be measured")
    a, b = min(said, ceiling), min(found, ceiling)
    off = 0.0 if a == b else b - a
    same = abs(off) <= slack + 1e-9
    return Check(
        of, "same" if same else "differs", card, f"{found:.2f}{unit}", "" if same else f"{off:+.2f}{unit}"
    )


def _checks_of_gates(then: Evaluation, now: Evaluation, unscored: str) -> Iterator[Check]:
    """Yield whether each limit that the card says was kept is kept now."""
    for limit in fields(Gate):
        bound = getattr(then.gate, limit.name)
        if bound is None:
            continue
        of = f"limit {limit.name} {bound:g}"
        before = [f for f in then.failures if f.demand == limit.name]
        after = [f for f in now.failures if f.demand == limit.name]
        said = before[0].result if before else "kept"
        if getattr(now.gate, limit.name) is None:
            yield Check(of, "not checked", said, "", unscored if limit.name != "min_speedup" else "a time")
            continue
        found = after[0].result if after else "kept"
        missing = f"{after[0].missing:.2f} {after[0].unit} off".replace("  ", " ") if after else ""
        yield Check(of, "differs" if after and not before else "same", said, found, missing)


def repeatable_gate(gate: Gate, *, scored: bool) -> Gate:
    """Return the limits that a repetition is held against: no times, and scores where it has them."""
    kept = replace(gate, min_speedup=None)
    return kept if scored else replace(kept, max_accuracy_drop=None, max_drop=None, min_score=None)


def metric_of(card: Card) -> str | None:
    """Return the metric that a card was made with; None for none, and for a function, which is code."""
    name = card.evaluation.metric
    return name if name and named_metric(name) is not None else None
