"""The file format of profiles: no other module reads or writes it.

A profile is one YAML document that ends with a line "...":

    format: qprof-profile/4
    tool: ...                      who wrote it
    origin: qprof                  or the name of the file format of another tool
    model: file, structure, weights, opset
    data: samples, digest, runs, random (true where some samples are random values)
    tensors:                       in graph order
      NAME:
        dtype, shape (null where free; null for an unknown rank), minimum, maximum, count, zeros, nan, inf
        histogram: exponent, first, counts          bins of width 2**exponent
                or minimum, maximum, counts         equal bins, of another tool's file
                or null                             where that has none: only the range is known
        channels: axis, count, minimum, maximum, sums       where channels were recorded one by one
        extremes: lowest, highest                           see `checks.text`
    extreme_samples:               digest and name of each sample that made an extreme
    inputs:                        of the graph, in order
      NAME: sizes, normalised, transposed                   see `checks.inputs.InputProfile`
        tensor:                    as under `tensors`, where the input is not among them
    noise: samples, measured       measured noise, see `noise.text`; absent where none was to be measured

`counts` is one text of numbers; `0*n` stands for a run of n zeros. Floats are written by `repr`, so that
`loads(dumps(p)) == p`. Under `channels`, `count`, `minimum` and `maximum` are one text each with a number for
each channel (one number where all are equal), and `sums` is a list of such texts;
`channel_statistics.Channels` defines them. Format 5 is format 4 with tensors whose histogram is null, and
written where there are some. Format 3 is format 4 without runs, extremes and inputs, and written where there
are none; format 2 is that without `noise`; format 1 is that without `channels`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ..base.atomic_files import read_text, write_atomically
from ..base.errors import ProfileError
from ..base.strict_yaml import (
    MalformedError,
    block,
    check_format,
    check_whole,
    entry,
    fields,
    flag_at,
    integer_at,
    mapping_at,
    parse,
    text_at,
)
from ..checks.inputs import InputProfile, sizes_at, sizes_text
from ..checks.text import Row, rows_at, rows_text, sample_rows
from ..noise.text import noise_at, noise_text
from .histogram import UnknownBins
from .profile import FLOAT_DTYPES, DataId, ModelId, Profile, TensorProfile
from .tensor_text import check, tensor_at, tensor_text

FAMILY, VERSION, WITHOUT_RANGES, WITHOUT_RUNS, WITHOUT_NOISE = "qprof-profile", 5, 4, 3, 2
ADVICE = "restore the file, or profile the model again with 'qprof dump-profile'"


def save_profile(profile: Profile, path: str | os.PathLike[str]) -> None:
    """Write a profile in one step: the file is complete, or as it was before.

    Args:
        profile: what to write.
        path: the file; replaced when it exists.

    Raises:
        ProfileError: the profile contradicts itself. ConfigError: the file cannot be written.
    """
    write_atomically(path, dumps(profile))


def load_profile(path: str | os.PathLike[str]) -> Profile:
    """Read a profile of qprof.

    Raises:
        ProfileError: the file is missing, malformed in any way, or contradicts itself; the message names
            file and tensor.
    """
    return loads(read_text(path, ProfileError), Path(path).name)


def dumps(profile: Profile) -> str:
    """Return the text of a profile file.

    Raises:
        ProfileError: the profile contradicts itself (`loads` would refuse the text).
    """
    version = WITHOUT_RANGES if profile.runs else WITHOUT_RUNS if profile.noise_samples else WITHOUT_NOISE
    version = VERSION if any(isinstance(t.histogram, UnknownBins) for t in profile.values()) else version
    head = {"format": f"{FAMILY}/{version}", "tool": profile.tool, "origin": profile.origin}
    lines = [block(head), "model:\n", block(model_fields(profile.model), 2)]
    data = {"samples": profile.data.samples, "digest": profile.data.digest}
    runs = {"runs": profile.runs} if profile.runs else {}
    lines += ["data:\n", block(data | runs | ({"random": True} if profile.data.random else {}), 2)]
    others = {name: given for name, given in profile.inputs.items() if name not in profile}
    written = [*profile.values(), *(given.tensor for given in others.values())] if profile.runs else []
    rows = sample_rows(tensor.extremes for tensor in written)
    place = {row: number for number, row in enumerate(rows)} if profile.runs else None
    lines.append("tensors:\n" if profile.tensors else "tensors: {}\n")
    try:
        for name, tensor in profile.tensors.items():
            check(tensor, f"tensor '{name}'", FLOAT_DTYPES)
            lines.append(entry(name, "\n" + tensor_text(tensor, place, 4).rstrip("\n"), 2))
        if profile.runs:
            lines.append(rows_text(rows))
            lines += _inputs_text(profile, place)
    except MalformedError as problem:
        raise ProfileError(
            f"profile of {profile.model.file or 'a model'}: {problem}; this is a defect of the writer"
        ) from None
    if profile.noise_samples:
        lines.append(noise_text(profile.noise, profile.noise_samples, list(profile)))
    return "".join(lines) + "...\n"


def _inputs_text(profile: Profile, place: Mapping[Row, int] | None) -> Iterator[str]:
    """Yield the lines of the entry `inputs`."""
    yield "inputs:\n" if profile.inputs else "inputs: {}\n"
    for name, given in profile.inputs.items():
        facts = {"sizes": sizes_text(given.sizes), "normalised": given.normalised}
        written = block({**facts, "transposed": given.transposed}, 4)
        if name not in profile:
            check(given.tensor, f"input '{name}'", None)
            written += f"    tensor:\n{tensor_text(given.tensor, place, 6)}"
        yield entry(name, "\n" + written.rstrip("\n"), 2)


def loads(document: str, source: str = "profile") -> Profile:
    """Return the profile that a text describes; `source` names it in errors. See `load_profile`."""
    try:
        if document.startswith(f"format: {FAMILY}/"):
            check_whole(document)
        top = check_format(parse(document), FAMILY, VERSION, "give a profile written by 'qprof dump-profile'")
        check_whole(document)
        return _profile(top)
    except MalformedError as problem:
        raise ProfileError(problem.message(source, ADVICE)) from None


def model_fields(model: ModelId) -> dict[str, object]:
    """Return the entries of `model` as they stand in profiles and plans."""
    return {"file": model.file, "structure": model.structure, "weights": model.weights, "opset": model.opset}


def model_at(value: object) -> ModelId:
    """Return the ModelId that the entry `model` of a profile or a plan describes, or raise MalformedError."""
    entries = fields(value, "model", ("file", "structure", "weights", "opset"))
    return ModelId(
        structure=text_at(entries["structure"], "model: structure"),
        weights=text_at(entries["weights"], "model: weights"),
        opset=integer_at(entries["opset"], "model: opset", 0),
        file=text_at(entries["file"], "model: file"),
    )


# Reading ---------------------------------------------------------------------------------------------------


def _profile(top: dict[str, object]) -> Profile:
    optional = ("noise", "extreme_samples", "inputs")
    fields(top, "the document", ("format", "tool", "origin", "model", "data", "tensors"), optional)
    origin = text_at(top["origin"], "origin")
    if not re.fullmatch("[a-z0-9-]+", origin):
        raise MalformedError(f"origin '{origin}' is not the name of a format of files", "use qprof or glow")
    data = fields(top["data"], "data", ("samples", "digest"), ("runs", "random"))
    digest = text_at(data["digest"], "data: digest")
    if not re.fullmatch("[0-9a-f]{32}", digest):
        raise MalformedError(f"data: digest '{digest}' is not 32 hexadecimal digits")
    rows = rows_at(top["extreme_samples"]) if "extreme_samples" in top else []
    entries = mapping_at(top["tensors"], "tensors")
    tensors = {
        name: tensor_at(value, f"tensor '{name}'", rows, FLOAT_DTYPES) for name, value in entries.items()
    }
    inputs = mapping_at(top["inputs"], "inputs") if "inputs" in top else {}
    count, noise = noise_at(top["noise"], list(tensors)) if "noise" in top else (0, ())
    return Profile(
        model=model_at(top["model"]),
        data=DataId(
            integer_at(data["samples"], "data: samples", 0),
            digest,
            flag_at(data.get("random", False), "data: random"),
        ),
        tensors=tensors,
        origin=origin,
        tool=text_at(top["tool"], "tool"),
        noise=noise,
        noise_samples=count,
        runs=integer_at(data.get("runs", 0), "data: runs", 0),
        inputs={name: _input(name, value, rows, tensors) for name, value in inputs.items()},
    )


def _input(
    name: str, value: object, rows: Sequence[Row], tensors: Mapping[str, TensorProfile]
) -> InputProfile:
    where = f"input '{name}'"
    own = () if name in tensors else ("tensor",)
    entries = fields(value, where, ("sizes", "normalised", "transposed", *own))
    return InputProfile(
        tensors[name] if name in tensors else tensor_at(entries["tensor"], where, rows, None),
        sizes_at(entries["sizes"], f"{where}: sizes"),
        flag_at(entries["normalised"], f"{where}: normalised"),
        flag_at(entries["transposed"], f"{where}: transposed"),
    )
