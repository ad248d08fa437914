"""The engine of `tune`: a candidate's settings become a plan, and the plan a model that is run.

candidate ─► planned ─► predicted     its objective, before anything is run
                └─────► attempts      its model is written and judged
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Generic, TypeVar

from ...profiles.base.errors import ModelError, WritingError
from ...profiles.base.improvement import leave_out
from ...profiles.records.profile import Profile
from ...profiles.runner.sample_pass import map_in_threads
from ..costs.predicted import CostModel, total_microseconds
from ..lowering.lower import lower
from ..lowering.lowered import LoweredModel
from ..model.files import model_bytes
from ..model.saving import save_model
from ..noise.activation_ranges import RangeCache
from ..plan.provenance import plan_digest
from ..plan.reasons import FloatReasons
from ..planning.facts import PlanningFacts
from ..planning.plan_model import PlannedModel, model_facts, plan_from
from ..prepare.prepare import PreparedModel
from ..targets.config import DATA_FREE, with_limit
from ..targets.conformance import check_conformity
from ..targets.loading import with_settings
from ..targets.target import Recipe
from .candidates import Candidate
from .fallback_nodes import plan_that_runs
from .integer_share import int8_share, saved_bytes
from .loop import CANDIDATE_ERRORS

T = TypeVar("T")

Judge = Callable[[Candidate, PlannedModel, Path], T]
"""Says what a candidate is worth, of its plan and the file of its model."""

OTHER_CALIBRATORS = ("minmax", "percentile", "mse")
"""Calibrators that are tried in place of the given one; kl takes its time, and is better by chance alone."""

KEPT_PLANS = 12
"""Plans that are kept between forecast and attempt, the last ones."""


@dataclass(frozen=True, eq=False)
class Attempt(Generic[T]):
    """What became of a candidate.

    Attributes:
        candidate: the candidate.
        planned: its plan, as it was run; None where none could be made.
        path: the file of its model; None where none had to be written.
        result: of the judge, on this model or on one of an equal plan; None for an error.
        error: why it cannot be planned, written or run; None where it can.
    """

    candidate: Candidate
    planned: PlannedModel | None = None
    path: Path | None = None
    result: T | None = None
    error: Exception | None = None


@dataclass(frozen=True, eq=False)
class Engine:
    """Plans and models of one float model, under the settings of candidates.

    What was calibrated and what else is known of tensors is kept from plan to plan; so are the last plans.

    Attributes:
        path: the float model's file.
        prepared, profile, recipe: what plans are made from; the settings of candidates change the recipe's.
        unfit: nodes that stay float in every plan, since an earlier one could not be run, with the reasons.
    """

    path: Path
    prepared: PreparedModel
    profile: Profile
    recipe: Recipe
    unfit: FloatReasons = field(default_factory=dict)
    _facts: dict[tuple[object, ...], PlanningFacts] = field(default_factory=dict, init=False)
    _ranges: dict[tuple[str, str], RangeCache] = field(default_factory=dict, init=False)
    _plans: dict[tuple[str, tuple[str, ...]], PlannedModel] = field(default_factory=dict, init=False)

    def facts(self, candidate: Candidate) -> PlanningFacts:
        """Return what the plan of a candidate is made from.

        Raises:
            ConfigError: its settings do not go together.
        """
        recipe = with_settings(self.recipe, candidate.settings, candidate.base.name)
        config = recipe.config
        # What is said of limits, and which chains are planned as one node, depends on these alone.
        chains = (config.keep_16bit, config.form, config.cost_model)
        key = (config.mode in DATA_FREE, config.min_output_sqnr, config.tolerance, *chains)
        if key not in self._facts:
            facts = model_facts(self.prepared, self.profile, recipe, self.prepared.findings)
            self._facts[key] = facts.with_unfit(self.unfit)
        shared = next(iter(self._facts.values())).range_cache
        ranges = self._ranges.setdefault(
            (config.calibrator, config.schema),
            RangeCache(shared.profiles, shared.densities, {}, shared.functions),
        )
        facts = self._facts[key]
        changed = replace(facts, recipe=recipe, config=with_limit(config), range_cache=ranges)
        return changed.with_derived_of(facts)

    def planned(self, candidate: Candidate) -> PlannedModel:
        """Return the verified plan of a candidate, with the model that it is lowered from, before it is run.

        Raises:
            ConfigError, PlanError: it cannot be made.
        """
        key = (candidate.base.name, candidate.keep_float)
        if key not in self._plans:
            self._keep(candidate, plan_from(self.facts(candidate)))
        return self._plans[key]

    def planned_to_run(self, candidate: Candidate) -> PlannedModel:
        """Return the plan of a candidate with the nodes in float that cannot be written or run.

        Raises:
            ConfigError, PlanError, ModelError: it cannot be made or run.
        """
        planned = plan_that_runs(self.facts(candidate), self.path)[0]
        self._keep(candidate, planned)
        return planned

    def _keep(self, candidate: Candidate, planned: PlannedModel) -> None:
        self._plans[candidate.base.name, candidate.keep_float] = planned
        for key in list(self._plans)[:-KEPT_PLANS]:
            del self._plans[key]

    def predicted(self, planned: PlannedModel, objective: str) -> float:
        """Return the value of one of `OBJECTIVES` as it is predicted of a plan, larger is better.

        For a target without a table of kernel times that of latency is the share of the arithmetic in int8.
        """
        plan, graph, facts = planned.plan, planned.graph, planned.facts
        if objective == "size":
            float_bytes = model_bytes(self.path)
            return float_bytes / max(1.0, float_bytes - saved_bytes(plan, graph))
        table = None if facts is None else facts.recipe.costs
        if objective == "int8-share" or facts is None or facts.file_costs is None or table is None:
            return int8_share(plan, graph, self.profile)
        model = CostModel(graph, facts.profile, table)
        total = total_microseconds(model.costs(plan), graph, plan)
        return sum(facts.file_costs.floating.values()) / max(total, 1e-3)

    def lowered(self, planned: PlannedModel) -> LoweredModel:
        """Return the quantized model of a plan, with what its target does not support as it stands.

        Raises:
            PlanError: the form cannot write it. ConfigError: its runtime would refuse it.
        """
        lowered = lower(planned.model, planned.plan)
        findings = check_conformity(lowered.model, self.recipe.target, "quantized model")
        return replace(lowered, findings=(*lowered.findings, *findings))

    def write(self, candidate: Candidate, planned: PlannedModel, path: Path) -> None:
        """Write the model of a candidate's plan.

        Raises:
            WritingError: there is no room, which says nothing about the candidate. PlanError, ConfigError:
                see `lowered`.
        """
        try:
            save_model(self.lowered(planned).model, path)
        except WritingError as error:
            raise WritingError(
                f"trial '{candidate.base.name}': {error} for temporary files with TMPDIR, or make room; "
                "with a state file the tuning is resumed"
            ) from error

    def attempts(
        self,
        candidates: Sequence[Candidate],
        judge: Judge[T],
        known: MutableMapping[str, T],
        parallel: int = 1,
    ) -> Iterator[Attempt[T]]:
        """Plan, write, run and judge candidates; yield what became of each, in this order.

        While one model is judged, the next is planned and written. A candidate that cannot be run is planned
        again with the nodes in float that this is due to. One that fails by a fault of qprof is left out.

        Args:
            candidates: what is tried.
            judge: called with each, in threads of its own where there are several.
            known: results by digest of the plan: what is in it is not run again; new ones are added.
            parallel: how many are judged side by side.

        Raises:
            WritingError: a model cannot be written. Whatever else of the user's the judge raises that is not
                in `CANDIDATE_ERRORS`.
        """

        def failed(candidate: Candidate, error: Exception) -> Attempt[T]:
            text = leave_out(f"candidate '{candidate.base.name}'", error)
            return Attempt(candidate, error=RuntimeError(text))

        def caught(candidate: Candidate, work: Callable[[], Attempt[T]]) -> Attempt[T]:
            """Return what a step returns, or its error where that says something of the candidate."""
            try:
                return work()
            except WritingError:
                raise
            except CANDIDATE_ERRORS as error:
                return Attempt(candidate, error=error)
            except Exception as error:
                return failed(candidate, error)

        with tempfile.TemporaryDirectory(prefix="qprof-", ignore_cleanup_errors=True) as folder:
            begun = set(known)

            def planned_and_written(place: int, candidate: Candidate) -> Attempt[T]:
                planned = self.planned(candidate)
                digest = plan_digest(planned.plan)
                if digest in begun:
                    return Attempt(candidate, planned)
                begun.add(digest)
                path = Path(folder) / f"trial-{place}.onnx"
                self.write(candidate, planned, path)
                return Attempt(candidate, planned, path)

            def judged(attempt: Attempt[T]) -> Attempt[T]:
                if attempt.planned is None or attempt.path is None:
                    return attempt
                try:
                    return replace(attempt, result=judge(attempt.candidate, attempt.planned, attempt.path))
                except ModelError as error:
                    return replace(attempt, error=error)
                except Exception as error:
                    return failed(attempt.candidate, error)

            def judged_again(candidate: Candidate) -> Attempt[T]:
                path = Path(folder) / "again.onnx"
                planned = self.planned_to_run(candidate)
                self.write(candidate, planned, path)
                return Attempt(candidate, planned, path, judge(candidate, planned, path))

            written = (
                caught(candidate, partial(planned_and_written, place, candidate))
                for place, candidate in enumerate(candidates)
            )
            for done, _ in map_in_threads(judged, written, parallel, lambda: False):
                attempt = done
                digest = "" if attempt.planned is None else plan_digest(attempt.planned.plan)
                if attempt.error is None and attempt.path is None and digest in known:
                    attempt = replace(attempt, result=known[digest])
                elif attempt.error is not None or attempt.path is None:
                    candidate = attempt.candidate
                    attempt = caught(candidate, partial(judged_again, candidate))
                if attempt.planned is not None and attempt.result is not None:
                    known.setdefault(plan_digest(attempt.planned.plan), attempt.result)
                yield attempt
