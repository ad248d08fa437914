"""Results of the public functions that hold more than those of the functions behind them."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, fields
from typing import Any

import onnx_ir as ir

from ...profiles.base.errors import ConfigError
from ...profiles.base.json_values import to_jsonable
from ...profiles.base.output_files import replacing_together
from ...profiles.base.presentation import is_report
from ..model.output_paths import FilesRead, check_outputs
from ..model.saving import save_model
from ..plan.plan import QuantPlan
from ..search import tune as tuning


@dataclass(frozen=True, repr=False)
class TuneResult(tuning.TuneResult):
    """The result of a tuning, with its plan and its model.

    Attributes:
        plan: of the best trial, whether it meets the target or not; None where none could be run.
        quantized: its model; None where the target is missed.
        read: what it was made from, which `save` does not write over.
    """

    plan: QuantPlan | None = None
    quantized: ir.Model | None = field(default=None, compare=False)
    read: FilesRead = field(default=FilesRead(), compare=False)

    def to_dict(self) -> dict[str, Any]:
        """Return all but the plan and the model; the plan has a `to_dict` of its own."""
        names = [f.name for f in fields(tuning.TuneResult)]
        return {
            name: to_jsonable(getattr(self, name)) for name in (*names, "target_met", "verified", "limits")
        }

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model; a name that ends in .html, .md or .json asks for a report.

        Raises:
            ConfigError: there is no model, as the target is missed; or the file cannot be written, or is one
                that the model was made from.
        """
        check_outputs([path], self.read)
        if is_report(path):
            super().save(path)
        elif self.quantized is None:
            raise ConfigError(f"{path}: no plan met the target, so there is no model; see `limits`")
        else:
            with replacing_together(self.read.weights) as batch:
                save_model(self.quantized, path, batch=batch)


def with_more(kind: type, result: Any, **more: object) -> Any:
    """Return a result as one of a class that has more fields."""
    return kind(**{f.name: getattr(result, f.name) for f in fields(result)}, **more)
