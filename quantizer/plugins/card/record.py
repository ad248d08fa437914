"""A record that travels with a quantized model: its measured quality, and the data to measure it again.

A card identifies its files by digests, and contains their evaluation: anybody who has the files and the
samples can repeat it (`verification`).
"""

from __future__ import annotations

import hashlib
import html
import os
import platform
from collections.abc import Iterator
from dataclasses import dataclass, fields
from importlib import metadata
from pathlib import Path
from typing import Any

import msgspec

from ....profiles.base.errors import ConfigError, MalformedError, ModelError
from ....profiles.base.json_values import parse_json
from ....profiles.base.output_files import read_bytes
from ....profiles.base.presentation import Presentation, Presented, counted, decibels, size_text
from ....profiles.base.tool import tool_name
from ...evaluation.cost import Cost
from ...evaluation.evaluate import Evaluation
from ...evaluation.latency import times_as_fast
from ...evaluation.metrics.score import score_text
from ...evaluation.metrics.table import named_metric
from ...evaluation.options import Gate
from ...model.external_data import external_files
from ...targets.machine import processor

FORMAT = "qprof-card/1"

FRONT_MATTER = "---\nlibrary_name: onnx\ntags: [onnx, quantized, qprof]\n---"
"""The metadata that a model hub reads."""


@dataclass(frozen=True)
class FileDigest:
    """A file by the digest of its content.

    Attributes:
        name: without its folder.
        bytes: its size.
        sha256: of its bytes, in hexadecimal digits.
    """

    name: str
    bytes: int
    sha256: str


def files_of(path: str | os.PathLike[str]) -> tuple[FileDigest, ...]:
    """Return the digests of a model's file and, by name, of its files of external data.

    A file that is no model any more still has a digest. Raises ModelError if a file cannot be read.
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
        processor: its name, and its instruction sets for int8.
        system: the operating system.
        runtime: the runtime that ran both models, with its version.
    """

    processor: str
    system: str
    runtime: str


def this_machine(runtime: str) -> Machine:
    """Return this machine, with the version of a runtime (a key of `runtimes.RUNTIMES`)."""
    import onnxruntime

    here = processor()
    version = metadata.version(runtime) if runtime == "openvino" else onnxruntime.__version__
    name = f"{here.model} ({' '.join(here.features) or here.machine})"
    return Machine(name, f"{platform.system()} {platform.machine()}", f"{runtime} {version}")


@dataclass(frozen=True)
class Asked:
    """How the samples were read and the models were run: all that a repetition needs besides the files.

    Attributes:
        data: name of the samples.
        preprocess: the recipe that made samples of files: a built-in one, or its file; "" for none.
        limit: how many of the samples were drawn; None for all.
        labels: name of the labels; "" without labels.
        scored_output: the output that the labels belong to; None for the first.
        class_axis: axis of its classes; None for that of its operator.
        threads: threads inside an operator.
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
    """The measured figures of a quantized model, with the digests of all that they rest on.

    Attributes:
        tool: name and version of the program that measured it.
        float_model, quantized_model: the digests of their files, that of external data after the model.
        machine: machine of the measurement.
        asked: the samples, and how they were read.
        evaluation: the measurements, with their limits. Its `provenance` is the origin of the quantized model
            (plan, profile, target), its `subject` the samples.
    """

    tool: str
    float_model: tuple[FileDigest, ...]
    quantized_model: tuple[FileDigest, ...]
    machine: Machine
    asked: Asked
    evaluation: Evaluation

    def headline(self) -> str:
        """Return both models, and the worst SQNR of an output."""
        return self.evaluation.headline()

    def presentation(self) -> Presentation:
        """Return the figures of the evaluation, and the digests of models and samples."""
        shown, subject = self.evaluation.presentation(), self.evaluation.subject
        facts = [
            ("float model", f"sha256 {self.float_model[0].sha256}"),
            ("quantized model", f"sha256 {self.quantized_model[0].sha256}"),
            ("data", f"{self.asked.data}, digest {subject.get('data', '-')}"),
            ("machine", f"{self.machine.processor}, {self.machine.runtime}"),
        ]
        return Presentation((*shown.facts, *facts), shown.tables, shown.findings)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields, and the format."""
        return {"format": FORMAT, **super().to_dict()}

    def to_markdown(self) -> str:
        """Return the page of a model hub: front matter, then the figures, and how to repeat them."""
        return "\n".join((FRONT_MATTER, *_page(self)))


def make_card(model: Path, quantized: Path, evaluation: Evaluation, asked: Asked) -> Card:
    """Return the card of two models that were compared; raises ModelError if a file cannot be read."""
    here = this_machine(evaluation.runtime)
    return Card(tool_name(), files_of(model), files_of(quantized), here, asked, evaluation)


def load_card(path: str | os.PathLike[str]) -> Card:
    """Return the card in a file; ConfigError if it cannot be read, or is no card."""
    try:
        document = parse_json(read_bytes(path, ConfigError).decode(errors="replace"))
        kind = document.get("format") if isinstance(document, dict) else None
        if kind != FORMAT:
            raise ConfigError(
                f"{path}: is not a card: its format is {kind!r} and not '{FORMAT}'; give a file of "
                "'qprof evaluate --card'"
            )
        card = msgspec.convert(document, Card, strict=False)  # "inf" is a number
    except (MalformedError, msgspec.ValidationError, OverflowError) as problem:
        raise ConfigError(f"{path}: is not a card ({problem}); make it again") from problem
    if not card.float_model or not card.quantized_model or not card.evaluation.subject:
        raise ConfigError(f"{path}: does not record models and samples; make it again")
    return card


# The page of a model hub -----------------------------------------------------------------------------------


def _page(card: Card) -> Iterator[str]:
    """Yield the figures, the files by their digests, and the command that repeats the measurement."""
    evaluation, asked, machine = card.evaluation, card.asked, card.machine
    name, origin = _code(card.quantized_model[0].name), _code(card.float_model[0].name)
    samples = f"{counted(evaluation.samples, evaluation.rows)} of {_code(asked.data)}"
    yield f"\n# {name}\n"
    yield f"Quantized from {origin}. {card.tool} ran both models on {samples}:\n"
    yield "| | float | quantized | |"
    yield "|---|---:|---:|---|"
    if evaluation.score is not None:
        s = evaluation.score
        figures = [text.rsplit(" ", 1)[0] for text in score_text(s).split(", ")]
        yield (
            f"| {_text(evaluation.metric_title)} | {figures[0]} | {figures[1]} | "
            f"drop {s.drop:.2f} {s.drop_unit}, {s.interval}, {s.rows} scored |"
        )
    for output in evaluation.outputs:
        ratio = "" if output.difference is None else f"{decibels(output.difference.sqnr)} dB"
        same = (
            ""
            if output.agreement is None
            else f"{100 * output.agreement.ratio:.2f} % of the answers the same"
        )
        yield f"| SQNR of output {_code(output.name)} | | {ratio} | {same} |"
    before, after = evaluation.float_bytes, evaluation.quantized_bytes
    yield f"| size | {size_text(before)} | {size_text(after)} | {Cost(before, after).change} |"
    if evaluation.latency is not None:
        t = evaluation.latency
        threads = f"{t.threads} thread{'s' if t.threads > 1 else ''}"
        speed = f"{times_as_fast(t.speedup)} ({t.speedup_low:.2f} to {t.speedup_high:.2f}), {threads}"
        yield f"| time of a run | {t.float_ms:.3g} ms | {t.quantized_ms:.3g} ms | {speed} |"
    place = f"{_text(machine.processor)}, {machine.system}"
    yield f"\nMeasured with {machine.runtime} ({evaluation.provider}) on {place}.\n"
    if evaluation.gate.has_limit:
        for limit in fields(Gate):
            bound = getattr(evaluation.gate, limit.name)
            if bound is not None:
                missed = [f for f in evaluation.failures if f.demand == limit.name]
                yield f"* limit {limit.name} {bound:g}: {missed[0].result if missed else 'kept'}"
        yield ""
    yield from (f"* {_text(finding.text)}" for finding in evaluation.findings)
    yield "\n| | |\n|---|---|"
    for what, files in (("float model", card.float_model), ("quantized model", card.quantized_model)):
        for file in files:
            yield f"| {what}: {_code(file.name)} | sha256 {_code(file.sha256)}, {file.bytes} bytes |"
    yield f"| samples: {_code(asked.data)} | digest {_code(evaluation.subject['data'])} |"
    if made := evaluation.provenance:
        digests = f"plan {_code(made.plan)}, profile {_code(made.profile)}"
        yield f"| made by {_text(made.tool)} for {_code(made.target)} | {digests} |"
    recipe = f" --preprocess {asked.preprocess}" if asked.preprocess else ""
    truth = f" --labels {asked.labels}" if asked.labels else ""
    yield "\nTo repeat it:\n\n```sh"
    yield (
        f"qprof verify CARD.json {card.quantized_model[0].name} --model {card.float_model[0].name} "
        f"--data {asked.data}{recipe}{truth}"
    )
    yield "```\n"


def _text(text: str) -> str:
    """Return a text that neither Markdown nor a table takes for markup."""
    return html.escape(" ".join(text.split()), quote=False).replace("|", "\\|").replace("*", "\\*")


def _code(text: str) -> str:
    return f"`{' '.join(text.split()).replace('`', chr(39)).replace('|', chr(92) + '|')}`"


def metric_of(card: Card) -> str | None:
    """Return the metric that a card was made with; None for none, and for a function, which is code."""
    name = card.evaluation.metric
    return name if name and named_metric(name) is not None else None
