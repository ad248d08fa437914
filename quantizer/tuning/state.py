"""The state of a tuning on disk: what was tried, so that an interrupted one goes on where it was.

JSON: {"format": "qprof-tune/1", "key": {...}, "trials": [...], "rankings": {...}}. The key says what the
trials are about: model, profile, data, settings, promise. A state of another key is refused.
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
from .scores import Judgement
from .search import Base, Candidate, Trial

FORMAT = "qprof-tune/1"


@dataclass(frozen=True)
class State:
    """What is known of one tuning.

    Attributes:
        key: what it is about, by name.
        trials: in the order in which they were made.
        rankings: base name -> nodes, the most sensitive first.
    """

    key: Mapping[str, Any]
    trials: tuple[Trial, ...] = ()
    rankings: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def trial(self, candidate: Candidate) -> Trial | None:
        """Return the trial of a candidate that was made already."""
        return next((t for t in self.trials if t.candidate == candidate), None)

    def with_trial(self, trial: Trial) -> State:
        """Return the state with one trial more."""
        return replace(self, trials=(*self.trials, trial))

    def with_ranking(self, base: Base, names: tuple[str, ...]) -> State:
        """Return the state with the ranking of a base."""
        return replace(self, rankings={**self.rankings, base.name: names})


def save_state(state: State, path: str | Path) -> None:
    """Write a state; the file is there whole or as it was."""
    document = {"format": FORMAT, **to_jsonable(state)}
    write_atomically(path, json.dumps(document, indent=1, allow_nan=False) + "\n")


def load_state(path: str | Path, key: Mapping[str, Any]) -> State:
    """Return the state in a file, which must have this key; an empty one when there is no file.

    Raises:
        ConfigError: the file cannot be read, is no state, or belongs to another tuning.
    """
    if not Path(path).exists():
        return State(key)
    try:
        document = json.loads(read_text(path, ConfigError))
        if document["format"] != FORMAT:
            raise ValueError(f"format {document['format']!r} is not {FORMAT!r}")
        found = State(
            document["key"],
            tuple(_trial(entry) for entry in document["trials"]),
            {name: tuple(names) for name, names in document["rankings"].items()},
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ConfigError(
            f"{path}: is no state of qprof tune ({type(error).__name__}: {error}); delete it, or name another"
        ) from error
    wanted = json.loads(json.dumps(to_jsonable(dict(key))))
    changed = [name for name in wanted if found.key.get(name) != wanted[name]]
    if changed or found.key.keys() != wanted.keys():
        what = ", ".join(changed) or "other settings"
        raise ConfigError(
            f"{path}: is the state of another tuning (different: {what}); delete it, or name another file"
        )
    return replace(found, key=key)


def _trial(entry: Mapping[str, Any]) -> Trial:
    candidate = entry["candidate"]
    base = Base(candidate["base"]["name"], candidate["base"]["settings"])
    judged = entry["judgement"]
    judgement = None if judged is None else Judgement(**{k: _number(v) for k, v in judged.items()})
    return Trial(
        Candidate(base, tuple(candidate["keep_float"])),
        judgement,
        None if entry["value"] is None else _number(entry["value"]),
        int(entry["integer_nodes"]),
        str(entry["plan"]),
        str(entry["error"]),
    )


def _number(value: Any) -> Any:
    number = float(value) if isinstance(value, str) else value  # "inf" and the like
    if isinstance(number, bool) or not isinstance(number, int | float) or math.isnan(number):
        raise ValueError(f"{value!r} is not a number")
    return number
