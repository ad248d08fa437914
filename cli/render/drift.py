"""What `qprof diff` prints, as text and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import TYPE_CHECKING

from ...profiles.base.json_values import to_jsonable
from .evaluation import table

if TYPE_CHECKING:
    from ...profiles.records.drift import TensorDrift
    from ...quantizer.evaluation.gates import GateFailure
    from ...quantizer.pipeline.drift_check import DriftReport


FEW = 3
"""So many names are listed where there may be many."""


def drift_json(found: DriftReport, worst: int | None = None) -> str:
    """Return the report as one JSON object: its fields, `passed`, and the N worst tensors (or all).

    A measure that could not be taken is null, an infinite one the string "inf".
    """
    document = {**to_jsonable(found), "passed": found.passed}
    document["drift"]["tensors"] = to_jsonable(found.worst(worst))
    return json.dumps(document, indent=2, allow_nan=False)


def drift_text(found: DriftReport, worst: int) -> str:
    """Return the report for people: notes, a table of the N worst tensors, and the limits that are broken."""
    drift, layers = found.drift, found.worst(worst)
    broken = {failure.where for failure in found.failures}
    header = ["tensor", "OLD", "NEW", "growth", "clipped", "OLD's own", "distance", "wasserstein", ""]
    rows = [[*_cells(tensor), "!" if tensor.tensor in broken else ""] for tensor in layers]
    if not any(tensor.clipped_old for tensor in drift.tensors):
        header, rows = header[:5] + header[6:], [row[:5] + row[6:] for row in rows]
    lines = [
        f"{found.new_profile} against {found.old_profile}: {found.new_samples} samples against "
        f"{found.old_samples}, calibrator {found.calibrator}",
        *(f"note: {note}" for note in drift.notes),
        *_names("NEW alone holds", drift.appeared),
        *_names("OLD alone holds", drift.vanished),
        *_non_finite(drift.tensors),
        "",
        *table([header, *rows], left=(0, len(header) - 1)),
    ]
    if len(layers) < len(drift.tensors):
        lines.append(f"... and {len(drift.tensors) - len(layers)} that drifted less")
    if found.gated:
        lines += ["", *(_failures(found.failures) if found.failures else ["gate       passed"])]
    return "\n".join(lines)


def _cells(t: TensorDrift) -> list[str]:
    return [
        t.tensor,
        f"{t.old_minimum:.4g} .. {t.old_maximum:.4g}",
        f"{t.new_minimum:.4g} .. {t.new_maximum:.4g}",
        f"{t.range_growth:.3f}" if t.range_growth < 1e6 else f"{t.range_growth:.3g}",
        _share(t.clipped),
        _share(t.clipped_old),
        _share(t.distance),
        _share(t.wasserstein),
    ]


def _share(value: float | None) -> str:
    """Return a number of some digits; "0" is exact, "-" could not be measured."""
    if value is None:
        return "-"
    if value == 0.0:
        return "0"
    return f"{value:.4f}" if 0.0001 <= value < 1e4 else f"{value:.2g}"


def _names(what: str, names: tuple[str, ...]) -> Iterator[str]:
    if names:
        few = ", ".join(names[:FEW]) + (", ..." if len(names) > FEW else "")
        yield f"note: {what} {len(names)} tensors: {few}"


def _non_finite(tensors: Iterable[TensorDrift]) -> Iterator[str]:
    odd = sorted((t for t in tensors if t.non_finite), key=lambda t: -t.non_finite)
    if odd:
        yield (
            f"note: NaN or Inf in {len(odd)} tensors of NEW; worst '{odd[0].tensor}': "
            f"{_share(odd[0].non_finite)} of its elements"
        )


def _failures(failures: Iterable[GateFailure]) -> Iterator[str]:
    for (demand, limit), group in groupby(failures, lambda failure: (failure.demand, failure.limit)):
        members = list(group)
        worst = members[0]
        found = "nothing could be compared" if worst.measured is None else f"{worst.measured:.4g}"
        many = f"{len(members)} tensors, the worst " if len(members) > 1 else "tensor "
        yield f"FAILED     --{demand.replace('_', '-')} {limit:g}: {many}'{worst.where}': {found}"
