"""Perplexity: how well a language model tells the next token of a text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ....profiles.base.errors import ConfigError, DataError, ModelError, nearest
from ....profiles.samples.token_inputs import usual_role
from ....profiles.samples.values import Sample
from ...evaluation.metrics.metric import Figures, Floats, Metric, MetricSource, Outputs, of_sums
from ...evaluation.metrics.truth import Place

POSITIONS_AT_ONCE = 64
"""Positions whose scores are exponentiated at a time: vocabularies are large."""


def perplexity(source: MetricSource) -> Metric:
    """Return exp of the mean negative log-probability of the next token (Jelinek et al., 1977).

    Scores are an output [..., positions, tokens], before Softmax or its logarithm.
    """
    output, metric = source.values_output, source.metric

    def truth(place: Place, floats: Outputs) -> tuple[Any, int]:
        assert place.sample is not None
        return (_next_tokens(place.sample, metric.options["ids"], metric.text), not place.sample.step), 0

    def scored(truth: tuple[npt.NDArray[np.int64], bool], outputs: Outputs) -> Floats:
        """Return, of one sample: whether a text begins, negative log-probability, tokens, that of chance."""
        tokens, begins = truth
        values = outputs[output]
        if values.ndim < 2 or values.dtype.kind not in "fV":
            raise ModelError(
                f"output '{output}': {values.dtype} of shape {list(values.shape)} is not an array of token "
                "scores; choose another with --scored-output"
            )
        scores, truths = _aligned(values, tokens)
        lost = 0.0
        for start in range(0, len(truths), POSITIONS_AT_ONCE):
            part = scores[start : start + POSITIONS_AT_ONCE].astype(np.float64)
            total = np.logaddexp.reduce(part, axis=1)
            own = truths[start : start + POSITIONS_AT_ONCE]
            lost += float((total - part[np.arange(len(own)), own]).sum())
        # A model that knows nothing of the text gives every token the same probability.
        return np.array([begins, lost, len(truths), len(truths) * np.log(values.shape[-1])])

    return Metric(
        *source.called,
        f"{metric.title} of output '{output}'",
        reads=output,
        truth=truth,
        scored=scored,
        figures=lambda kept: _figures(kept, 1, output),
        at_random=lambda kept: _figures(kept, 3, output),
    )


def _figures(kept: Sequence[Floats], column: int, output: str) -> Figures:
    """Return the perplexity: of the model by column 1, of a uniform distribution by column 3."""
    rows = np.stack(list(kept))
    texts = np.maximum(np.cumsum(rows[:, 0]) - 1, 0).astype(np.intp)
    sums = np.zeros((int(texts.max()) + 1, 2))
    np.add.at(sums, texts, rows[:, [column, 2]])
    sums = sums[sums[:, 1] > 0]
    if not len(sums):
        raise DataError(
            f"metric perplexity: no next token of output '{output}' is known; give texts, or ids of "
            "two tokens and more"
        )
    with np.errstate(over="ignore"):
        return of_sums(sums, lambda of: np.exp(of[:, 0] / np.maximum(of[:, 1], 1.0)))


def _aligned(
    values: npt.NDArray[Any], tokens: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    """Return scores and tokens of positions that have both; some models output the last ones only."""
    positions = values.shape[-2]
    scores = values.reshape(-1, positions, values.shape[-1])
    truths = tokens.reshape(len(scores), -1)[:, -positions:] if tokens.size else np.full(scores.shape[:2], -1)
    if truths.shape[1] < positions:
        truths = np.pad(truths, [(0, 0), (0, positions - truths.shape[1])], constant_values=-1)
    return scores[truths >= 0], truths[truths >= 0]


def _next_tokens(sample: Sample, ids: Any, metric: str) -> npt.NDArray[np.int64]:
    """Return the token after each position, -1 if it is unknown, of the shape of the ids."""
    if sample.next_tokens is not None:
        return sample.next_tokens
    roles = {name: usual_role(name) for name in sample.arrays}
    integer = [n for n, a in sample.arrays.items() if a.dtype.kind in "iu" and a.ndim]
    usual = [name for name in integer if roles[name] == "ids"]
    candidates = [str(ids)] if ids is not None else usual or integer
    if len(candidates) != 1 or candidates[0] not in sample.arrays:
        raise ConfigError(
            f"metric '{metric}': which input has the tokens is not known; name it, as in perplexity:ids=NAME."
            f"{nearest(candidates[0] if candidates else '', list(sample.arrays))}"
        )
    tokens = np.asarray(sample.arrays[candidates[0]], np.int64)
    following = np.full(tokens.shape, -1)
    following[..., :-1] = tokens[..., 1:]
    for name, role in roles.items():
        mask = sample.arrays[name]
        if role == "attention_mask" and mask.shape == tokens.shape:
            following[..., :-1][mask[..., 1:] == 0] = -1
            following[mask == 0] = -1
    return following
