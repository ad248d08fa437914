"""What a person can ask of `tune`: a record whose fields are the options of the command too."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from ....profiles.base.options import option
from ...api.options import Judge
from ...search.options import QualityTarget

if TYPE_CHECKING:
    from ....profiles.samples.objects import DataSource
    from ...api.sources import LabelsLike
    from ...search.candidates import Trial


@dataclass(frozen=True, kw_only=True)
class TuneOptions(QualityTarget, Judge):
    """The quality that a tuned model has to keep, how the search for it is run, and the files it writes.

    Attributes:
        holdout_data: Samples that verify the result. [default: half of --data is held out]
        holdout_labels: Labels of --holdout-data.
        save_plan: Write the best plan.
        on_trial: called after each trial.
        progress: of trials: True for a bar, or called after each.

    Raises:
        ConfigError: a value is outside its range, or not finite.
    """

    holdout_data: Annotated[DataSource | None, option("Quality", metavar="DATA", takes="data")] = None
    holdout_labels: Annotated[LabelsLike | None, option("Quality", metavar="FILE", takes="truth")] = None
    save_plan: Annotated[
        str | os.PathLike[str] | None, option("Files", metavar="PLAN.yaml", takes="new file")
    ] = None
    on_trial: Callable[[int, Trial], None] | None = None
