"""The state of a tuning on disk: its trials, so that an interrupted tuning can be resumed.

JSON: {"format": "qprof-tune/4", "key": {...}, "results": {...}, "sha256": "..."}. The
key holds what the trials depend on: model, profile, data, metric, settings, all facts of the target, quality
target, versions of qprof and of the libraries that compute. A state with another key is refused, and so are
older formats and a file whose digest does not fit: a state is a cache, and can be deleted.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from ...profiles.base.errors import ConfigError
from ...profiles.base.json_values import to_jsonable
from ...profiles.base.output_files import write_atomically
from ..evaluation.metrics.score import Score
from .candidates import Candidate, Forecast, Foresee, Measure, RankedNode, RankNodes, Trial, Verify

FORMAT = "qprof-tune/4"
_ADVICE = "delete it to start over, or name another file"


@dataclass(frozen=True)
class Results:
    """What was answered so far, each with the candidate that it belongs to.

    Attributes:
        trials: in the order in which they were run.
        forecasts: of plans that were made, and perhaps never run.
        rankings: nodes, those first whose noise is worth most time.
        values: of the objective, where it was measured.
        verified: scores on the held-out samples.
    """

    trials: tuple[Trial, ...] = ()
    forecasts: tuple[tuple[Candidate, Forecast], ...] = ()
    rankings: tuple[tuple[Candidate, tuple[RankedNode, ...]], ...] = ()
    values: tuple[tuple[Candidate, float], ...] = ()
    verified: tuple[tuple[Candidate, Score], ...] = ()


@dataclass(frozen=True)
class State:
    """The results of one tuning.

    Attributes:
        key: what they depend on, by name.
        results: what was answered so far.
    """

    key: Mapping[str, Any]
    results: Results = Results()

    @property
    def trials(self) -> tuple[Trial, ...]:
        """The trials that were run."""
        return self.results.trials

    def trial(self, candidate: Candidate) -> Trial | None:
        """Return the trial of a candidate that was run already; None where there is none."""
        return next((t for t in self.trials if t.candidate == candidate), None)

    def with_trial(self, trial: Trial) -> State:
        """Return the state with one more trial."""
        return replace(self, results=replace(self.results, trials=(*self.trials, trial)))

    def answer(self, request: Foresee | RankNodes | Measure | Verify) -> Any:
        """Return what a request was answered with; None where it was not."""
        known = getattr(self.results, _PLACES[type(request)])
        if isinstance(request, Foresee):
            found = tuple(next((f for c, f in known if c == wanted), None) for wanted in request.candidates)
            return None if None in found else found
        return next((result for candidate, result in known if candidate == request.candidate), None)

    def with_answer(self, request: Foresee | RankNodes | Measure | Verify, answer: Any) -> State:
        """Return the state with the answer to one more request."""
        place = _PLACES[type(request)]
        if isinstance(request, Foresee):
            pairs = tuple(zip(request.candidates, answer, strict=True))
        else:
            pairs = ((request.candidate, answer),)
        return replace(
            self, results=replace(self.results, **{place: (*getattr(self.results, place), *pairs)})
        )


_PLACES: Mapping[type, str] = {
    Foresee: "forecasts",
    RankNodes: "rankings",
    Measure: "values",
    Verify: "verified",
}
"""Field of `Results` that has the answers to a request."""


@dataclass(frozen=True)
class _Document:
    """The state as its file holds it; msgspec checks each field."""

    format: str
    sha256: str
    key: dict[str, Any]
    results: Results


def save_state(state: State, path: str | Path) -> None:
    """Write a state; the file is replaced atomically."""
    document = {"format": FORMAT, **to_jsonable(state)}
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
    document = _read(Path(path))
    expected = json.loads(json.dumps(to_jsonable(dict(key))))
    changed = [name for name in expected if document.key.get(name) != expected[name]]
    if changed or document.key.keys() != expected.keys():
        what = ", ".join(changed) or "other settings"
        raise ConfigError(f"{path}: is the state of another tuning (different: {what}); {_ADVICE}")
    return State(key, document.results)


def _read(path: Path) -> _Document:
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
        return msgspec.convert({**found, "sha256": ""}, _Document, strict=False)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise _damaged(path, str(error)) from error


def _digest(document: Mapping[str, Any]) -> str:
    """Return a digest of everything in a document, however it is laid out."""
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def _damaged(path: Path, what: str) -> ConfigError:
    return ConfigError(f"{path}: is not a state of qprof tune, or is damaged ({what}); {_ADVICE}")
