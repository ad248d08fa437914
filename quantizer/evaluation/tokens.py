"""Language models in the user's unit: greedy tokens that stay the same, tokens a second."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from ...profiles.samples.values import Sample
from .latency import Run, measure, times_as_fast
from .options import LatencySettings


@dataclass(frozen=True)
class TokenAgreement:
    """How often both models take the same token as the most likely next one.

    Attributes:
        answers: whether the tokens are those of answers, where both go on by the float model's tokens; so
            they are the quantized model's own up to the first difference. Else those at every position of
            the texts, given the text so far.
        same, total: tokens that are the same, and all.
        sequences: texts, or answers.
        first_differences: of the sequences that differ the number of the first token that does, from 1, in
            order of the samples.
    """

    answers: bool
    same: int
    total: int
    sequences: int
    first_differences: tuple[int, ...]

    @property
    def text(self) -> str:
        """How often, and where the first difference is."""
        what, where = ("answers", "") if self.answers else ("texts", ", given the text so far")
        share = f"greedy {100 * self.same / self.total:.2f} % of {self.total} the same"
        if not (firsts := self.first_differences):
            return f"{share}, in {self.sequences} {what}"
        middle, least = statistics.median_low(firsts), min(firsts)
        return (
            f"{share}; {self.sequences - len(firsts)} of {self.sequences} {what} to the end, the others up "
            f"to token {middle}{where} (median of the first differences; the earliest {least})"
        )


@dataclass(frozen=True)
class TokenSpeed:
    """Tokens a second of both models.

    Attributes:
        of: "prompt" for many tokens in a run, "answer" for one.
        tokens: in a run; the mean of the runs that were timed.
        past: tokens before them, the mean.
        float_rate, quantized_rate: tokens a second, by the time of the thread that ran them.
        speedup: median over the rounds, and the ratio of these two.
    """

    of: str
    tokens: float
    past: float
    float_rate: float
    quantized_rate: float
    speedup: float

    @property
    def text(self) -> str:
        """Tokens a second of both."""
        what = f"runs of {self.tokens:.0f} tokens" if self.of == "prompt" else "one token a run"
        past = f" after {self.past:.0f}" if self.past else ""
        return (
            f"{self.float_rate:.0f} tokens a second float, {self.quantized_rate:.0f} quantized: "
            f"{times_as_fast(self.speedup)} ({what}{past})"
        )


class Texts:
    """Texts through both models, step by step, each with its answer."""

    def __init__(self, most_timed: int) -> None:
        """Keep at most so many steps of prompts, and of answers, to be timed."""
        self._most_timed = most_timed
        self._texts, self._answers = list[list[bool]](), list[list[bool]]()  # whether tokens are the same
        self._tokens = 0  # of the sequence so far
        self.timed: dict[str, list[tuple[Sample, int]]] = {"prompt": [], "answer": []}  # with tokens before

    @property
    def is_begun(self) -> bool:
        """Whether there is a text, which the next step may answer."""
        return bool(self._texts and self._texts[-1])

    def add(self, sample: Sample, floats: npt.NDArray[Any], quantized: npt.NDArray[Any]) -> None:
        """Take a step; scores are [..., positions, tokens]."""
        if not sample.step or not self._texts:
            self._tokens = 0
            self._texts.append([])
            self._answers.append([])
        steps = self.timed["answer" if sample.step else "prompt"]
        if len(steps) < self._most_timed:
            steps.append((sample, self._tokens))
        same = (floats.argmax(-1).reshape(-1) == quantized.argmax(-1).reshape(-1)).tolist()
        if sample.next_tokens is not None:
            self._texts[-1] += same
        else:
            self._answers[-1] = (self._answers[-1] or self._texts[-1][-1:]) + same
        self._tokens += new_tokens(sample)

    def agreement(self) -> TokenAgreement | None:
        """Return how often the tokens are the same: of answers, where there are some; None without a text."""
        answers = [same for same in self._answers if same]
        sequences = answers or [same for same in self._texts if same]
        if not sequences:
            return None
        firsts = tuple(same.index(False) + 1 for same in sequences if not all(same))
        same, total = sum(map(sum, sequences)), sum(map(len, sequences))
        return TokenAgreement(bool(answers), same, total, len(sequences), firsts)


def new_tokens(sample: Sample) -> int:
    """Return how many tokens a step of a text has: one where the model writes an answer."""
    return 1 if sample.next_tokens is None else int(sample.next_tokens.size)


def token_speed(
    of: str,
    steps: Sequence[tuple[Sample, int]],
    run_float: Run,
    run_quantized: Run,
    settings: LatencySettings,
) -> TokenSpeed:
    """Return the tokens a second of both models; with several threads the clock measures, else the time of
    the thread."""
    latency = measure(
        run_float,
        run_quantized,
        len(steps),
        settings,
        clock=time.thread_time if settings.threads == 1 else time.perf_counter,
    )
    tokens = sum(new_tokens(sample) for sample, _ in steps) / len(steps)
    return TokenSpeed(
        of=of,
        tokens=tokens,
        past=sum(past for _, past in steps) / len(steps),
        float_rate=1e3 * tokens / latency.float_ms,
        quantized_rate=1e3 * tokens / latency.quantized_ms,
        speedup=latency.speedup,
    )
