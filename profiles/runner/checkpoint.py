"""Progress of a calibration run on disk, so that a run that was killed can be resumed.

A checkpoint is a text of three parts:

    qprof-checkpoint/5 DIGEST      the digest is that of all that follows, so a damaged file is never resumed
    {"run": ..., ...}              one line of JSON: identity of the run, and what is done
    format: qprof-profile/1 ...    the profile of the samples counted so far

It is replaced atomically, so a complete checkpoint always exists. It holds the digest of every sample that
was counted: a resumed run reads these samples again, without running them, and compares.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from ..base.errors import ProfileError
from ..base.output_files import read_text, remove_leftovers, write_atomically
from ..records.profile import DataId, NonFinite, Profile
from ..records.store import dumps, loads
from ..samples.samples import DIGEST_BYTES

FAMILY, VERSION = "qprof-checkpoint", 5
_ADVICE = "remove the file to start over, or name another checkpoint"


@dataclass(frozen=True)
class RunProgress:
    """The samples done, and what was counted; nothing for a new run."""

    samples: int = 0
    profile: Profile | None = None
    digests: bytes = b""


def load_progress(path: Path, run: Mapping[str, object]) -> RunProgress:
    """Return the progress of an earlier run of which all of `run` is equal; none if there is no file."""
    if not os.path.lexists(path):
        return RunProgress()
    first, _, rest = read_text(path, ProfileError).partition("\n")
    words = first.split(" ")
    if words[0] != f"{FAMILY}/{VERSION}" or len(words) != 2:
        kind = "a checkpoint of another version of qprof" if FAMILY in first else "not a checkpoint"
        raise ProfileError(f"{path}: is {kind}; {_ADVICE}")
    if words[1] != _digest(rest):
        raise ProfileError(f"{path}: is damaged: its digest is not that of its content; {_ADVICE}")
    line, _, profile = rest.partition("\n")
    try:
        entries = json.loads(line)
        earlier = dict(entries["run"])
        non_finite = msgspec.convert(entries["non_finite"], NonFinite)
        counted = replace(loads(profile, str(path)), non_finite=non_finite)
        digests = bytes.fromhex(entries["digests"])
        progress = RunProgress(int(entries["done"]), counted, digests)
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:  # forged
        raise ProfileError(f"{path}: contradicts itself ({error}); {_ADVICE}") from None
    _check_same_run(path, earlier, json.loads(json.dumps(run)))
    return progress


def _check_same_run(path: Path, earlier: Mapping[str, Any], run: Mapping[str, Any]) -> None:
    for key in [*run, *(key for key in earlier if key not in run)]:
        if key not in earlier or key not in run or earlier[key] != run[key]:
            raise ProfileError(
                f"{path}: belongs to a run with {key} {_short(earlier.get(key))}, "
                f"not {_short(run.get(key))}; {_ADVICE}"
            )


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=32).hexdigest()


def _short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 100 else f"{text[:97]}..."


def save_progress(path: Path, run: Mapping[str, object], progress: RunProgress) -> None:
    """Write the progress of a run atomically; `run` as for `load_progress`."""
    profile = progress.profile
    assert profile is not None
    head = {
        "run": run,
        "done": progress.samples,
        "digests": progress.digests.hex(),
        "non_finite": msgspec.to_builtins(profile.non_finite, order="deterministic"),
    }
    content = json.dumps(head) + "\n" + dumps(profile)
    write_atomically(path, f"{FAMILY}/{VERSION} {_digest(content)}\n{content}")


def remove_progress(path: Path) -> None:
    """Remove the file, if it exists, and the temporary files of killed runs: the profile was written."""
    path.unlink(missing_ok=True)
    remove_leftovers(path.parent)


class SampleDigests:
    """The digests of the samples of a run with a checkpoint, in order: a resumed run must see the same."""

    def __init__(self, checkpoint: Path | None, digests: bytes) -> None:
        """Begin with the digests of a checkpoint; without one no sample is read again."""
        self._checkpoint = checkpoint
        self._digests = bytearray(digests)

    def __len__(self) -> int:
        return len(self._digests) // DIGEST_BYTES

    def __bytes__(self) -> bytes:
        return bytes(self._digests)

    def note(self, number: int, name: str, data: DataId) -> None:
        """Note the digest of a sample; if there is one already, check that it is the same."""
        if self._checkpoint is None:
            return
        digest, start = bytes.fromhex(data.digest), number * DIGEST_BYTES
        if number >= len(self):
            self._digests += digest
        elif self._digests[start : start + DIGEST_BYTES] != digest:
            self._refuse(f"sample {name}: is not the one that was counted in its place")

    def check_end(self, number: int) -> None:
        """Check that a run of `number` samples is not shorter than the checkpoint's."""
        if number < len(self):
            self._refuse(f"the samples end after {number}, and {len(self)} were counted")

    def _refuse(self, problem: str) -> None:
        raise ProfileError(
            f"{self._checkpoint}: {problem} before the run was interrupted; restore the data that the "
            f"run began with, or {_ADVICE}"
        )
