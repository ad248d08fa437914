"""The state of a tuning on disk: its trials, so that an interrupted tuning can be resumed.

JSON: {"format": "qprof-tune/2", "key": {...}, "trials": [...], "rankings": {...}}. The key holds what the
trials depend on: model, profile, data, settings, quality target. A state with another key is refused. So is
format 1: a state is a cache, and can be deleted.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ...profiles.base.atomic_files import read_text, write_atomically
from ...profiles.base.errors import ConfigError
from ...profiles.base.json_values import to_jsonable
from .scores import Score
from .search import Base, Candidate, Request, Trial

FORMAT = "qprof-tune/2"


@dataclass(frozen=True)
class State:
    """The trials and rankings of one tuning.

    Attributes:
        key: what they depend on, by name.
        trials: in the order in which they were run.
        rankings: base name -> nodes, the most sensitive first.
    """

    key: Mapping[str, Any]
    trials: tuple[Trial, ...] = ()
    rankings: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def trial(self, candidate: Candidate) -> Trial | None:
        """Return the trial of a candidate that was run already; None where there is none."""
        return next((t for t in self.trials if t.candidate == candidate), None)

    def with_result(self, request: Request, result: Trial | tuple[str, ...]) -> State:
        """Return the state with the result of one more request."""
        if isinstance(result, Trial):
            return replace(self, trials=(*self.trials, result))
        return replace(self, rankings={**self.rankings, request.base.name: result})


def save_state(state: State, path: str | Path) -> None:
    """Write a state; the file is replaced atomically."""
    document = {"format": FORMAT, **to_jsonable(state)}
    write_atomically(path, json.dumps(document, indent=1, allow_nan=False) + "\n")


def load_state(path: str | Path, key: Mapping[str, Any]) -> State:
    """Return the state in a file, which must have this key; an empty one when there is no file.

    Raises:
        ConfigError: the file cannot be read, is not a state of this format, or belongs to another tuning.
    """
    if not Path(path).exists():
        return State(key)
    try:
        document = json.loads(read_text(path, ConfigError))
        _check_format(document["format"], path)
        state = State(
            document["key"],
            tuple(_trial(entry) for entry in document["trials"]),
            {name: tuple(names) for name, names in document["rankings"].items()},
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ConfigError(
            f"{path}: is not a state of qprof tune ({type(error).__name__}: {error}); delete it, or name "
            "another file"
        ) from error
    expected = json.loads(json.dumps(to_jsonable(dict(key))))
    changed = [name for name in expected if state.key.get(name) != expected[name]]
    if changed or state.key.keys() != expected.keys():
        what = ", ".join(changed) or "other settings"
        raise ConfigError(
            f"{path}: is the state of another tuning (different: {what}); delete it, or name another file"
        )
    return replace(state, key=key)


def _check_format(name: object, path: str | Path) -> None:
    if name != FORMAT:
        raise ConfigError(
            f"{path}: has format {name!r}, and this version of qprof reads {FORMAT!r} only; a state is a "
            "cache: delete it, or name another file"
        )


def _trial(entry: Mapping[str, Any]) -> Trial:
    candidate = entry["candidate"]
    base = Base(candidate["base"]["name"], candidate["base"]["settings"])
    values = entry["score"]
    score = None if values is None else Score(**{k: _number(v) for k, v in values.items()})
    return Trial(
        Candidate(base, tuple(candidate["keep_float"])),
        score,
        None if entry["value"] is None else _number(entry["value"]),
        int(entry["quantized_nodes"]),
        str(entry["plan_digest"]),
        str(entry["error"]),
    )


def _number(value: Any) -> Any:
    number = float(value) if isinstance(value, str) else value  # "inf" and the like
    if isinstance(number, bool) or not isinstance(number, int | float) or math.isnan(number):
        raise ValueError(f"{value!r} is not a number")
    return number
