"""The state of a tuning on disk: its trials, so that an interrupted tuning can be resumed.

JSON: {"format": "qprof-tune/4", "key": {...}, "results": {...}, "sha256": "..."}. The
key holds what the trials depend on: model, profile, data, metric, settings, all facts of the target, quality
target, versions of qprof and of the libraries that compute. A state with another key is refused, and so are
older formats and a file whose digest does not fit: a state is a cache, and can be deleted.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ...profiles.base.errors import ConfigError
from ...profiles.base.json_values import to_jsonable
from ...profiles.base.output_files import write_atomically
from ..evaluation.metrics.score import Score
from .candidates import Candidate, Forecast, RankedNode, Trial

FORMAT = "qprof-tune/4"
T = TypeVar("T")

_ADVICE = "delete it to start over, or name another file"


@dataclass
class State:
    """What one tuning has found so far; each with the candidate that it belongs to.

    Attributes:
        key: what the results depend on, by name.
        trials: in the order in which they were run.
        forecasts: of plans that were made, and perhaps never run.
        rankings: nodes, those first whose noise is worth most time.
        values: of the objective, where it was measured.
        verified: scores on the held-out samples.
    """

    key: Mapping[str, Any]
    trials: list[Trial] = field(default_factory=list)
    forecasts: list[tuple[Candidate, Forecast]] = field(default_factory=list)
    rankings: list[tuple[Candidate, tuple[RankedNode, ...]]] = field(default_factory=list)
    values: list[tuple[Candidate, float]] = field(default_factory=list)
    verified: list[tuple[Candidate, Score]] = field(default_factory=list)

    def trial(self, candidate: Candidate) -> Trial | None:
        """Return the trial of a candidate that was run already; None where there is none."""
        return next((t for t in self.trials if t.candidate == candidate), None)


def result_of(results: Iterable[tuple[Candidate, T]], candidate: Candidate) -> T | None:
    """Return the result of a candidate, from a list of a `State`; None where there is none."""
    return next((result for other, result in results if other == candidate), None)


def save_state(state: State, path: str | Path) -> None:
    """Write a state; the file is replaced atomically."""
    results = to_jsonable(state)
    document = {"format": FORMAT, "key": results.pop("key"), "results": results}
    text = json.dumps({**document, "sha256": _digest(document)}, indent=1, allow_nan=False)
    write_atomically(path, text + "\n")


def load_state(path: str | Path, key: Mapping[str, Any]) -> State:
    """Return the state in a file, which must have this key; an empty one when there is no file.

    Raises:
        ConfigError: the file cannot be read, is not a state of this format, is damaged, or belongs to another
            tuning.
    """
    if not Path(path).exists():
        return State(key)
    state = _read(Path(path))
    expected = json.loads(json.dumps(to_jsonable(dict(key))))
    changed = [name for name in expected if state.key.get(name) != expected[name]]
    if changed or state.key.keys() != expected.keys():
        what = ", ".join(changed) or "other settings"
        raise ConfigError(f"{path}: is the state of another tuning (different: {what}); {_ADVICE}")
    return replace(state, key=key)


@dataclass(frozen=True)
class _Document:
    """A state as its file holds it, beside format and digest."""

    key: dict[str, Any]
    results: dict[str, Any]


def _read(path: Path) -> State:
    """Return what a file holds, if it is whole."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}; name another state file") from error
    try:
        found = msgspec.json.decode(content)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise _damaged(path, "it is no JSON") from error
    if not isinstance(found, dict) or "format" not in found:
        raise _damaged(path, "it has no key 'format'")
    if found["format"] != FORMAT:
        raise ConfigError(
            f"{path}: has format {str(found['format'])[:40]!r}, and this version of qprof reads {FORMAT!r} "
            f"only; a state is a cache: {_ADVICE}"
        )
    if found.pop("sha256", None) != _digest(found):
        raise _damaged(path, "its contents do not have the digest 'sha256' that it names")
    try:
        # Not strict: an infinite end of an interval is the string "inf" (`to_jsonable`).
        document = msgspec.convert(found, _Document, strict=False)
        return msgspec.convert({**document.results, "key": document.key}, State, strict=False)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise _damaged(path, str(error)) from error


def _digest(document: Mapping[str, Any]) -> str:
    """Return a digest of everything in a document, however it is laid out."""
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def _damaged(path: Path, what: str) -> ConfigError:
    return ConfigError(f"{path}: is not a state of qprof tune, or is damaged ({what}); {_ADVICE}")
