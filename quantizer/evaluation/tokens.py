"""Language models in the user's unit: greedy tokens that stay the same, tokens a second, memory of states."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
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


@dataclass(frozen=True)
class StateMemory:
    """The memory that the state of a text takes, besides the weights.

    Attributes:
        float_bytes, quantized_bytes: for each token, of both models.
    """

    float_bytes: float
    quantized_bytes: float


@dataclass(frozen=True)
class TokenSums:
    """The sums of texts, sample by sample; `TokenSums()` before the first."""

    text: tuple[bool, ...] = ()  # whether each token of the sequence so far was the same
    answer: tuple[bool, ...] = ()  # the same of its answer
    # the sequences before: whether an answer, and its tokens
    ended: tuple[tuple[bool, tuple[bool, ...]], ...] = ()
    tokens: int = 0  # of the sequence so far
    float_bytes: float = 0.0  # of the state for each token, the largest
    quantized_bytes: float = 0.0

    def added(
        self,
        sample: Sample,
        floats: npt.NDArray[Any],
        quantized: npt.NDArray[Any],
        states: tuple[Sequence[npt.NDArray[Any]], Sequence[npt.NDArray[Any]]],
    ) -> TokenSums:
        """Return the sums with a step of a text; scores are [..., positions, tokens], `states` what both were
        fed."""
        now = self if sample.step else replace(self._closed(), tokens=0)
        same = (floats.argmax(-1).reshape(-1) == quantized.argmax(-1).reshape(-1)).tolist()
        if sample.next_tokens is not None:
            now = replace(now, text=(*now.text, *same))
        else:
            answer = now.answer or now.text[-1:]
            now = replace(now, answer=(*answer, *same))
        if now.tokens:
            of_float, of_quantized = (sum(array.nbytes for array in state) / now.tokens for state in states)
            now = replace(
                now,
                float_bytes=max(now.float_bytes, of_float),
                quantized_bytes=max(now.quantized_bytes, of_quantized),
            )
        return replace(now, tokens=now.tokens + new_tokens(sample))

    def _closed(self) -> TokenSums:
        """Return the sums with the sequence so far among those that have ended."""
        if not self.text and not self.answer:
            return self
        sequence = (True, self.answer) if self.answer else (False, self.text)
        return replace(self, text=(), answer=(), ended=(*self.ended, sequence))

    def agreement(self) -> TokenAgreement | None:
        """Return how often the tokens are the same: of answers, where there are some; None without a text."""
        ended = self._closed().ended
        answers = any(is_answer for is_answer, _ in ended)
        sequences = [same for is_answer, same in ended if is_answer or not answers]
        if not sequences:
            return None
        firsts = tuple(same.index(False) + 1 for same in sequences if not all(same))
        same, total = sum(map(sum, sequences)), sum(map(len, sequences))
        return TokenAgreement(answers, same, total, len(sequences), firsts)

    def memory(self) -> StateMemory | None:
        """Return the memory of the state for each token, or None if it does not grow with them."""
        return StateMemory(self.float_bytes, self.quantized_bytes) if self.float_bytes else None


def new_tokens(sample: Sample) -> int:
    """Return how many tokens a step of a text has: one where the model writes an answer."""
    return 1 if sample.next_tokens is None else int(sample.next_tokens.size)


@dataclass(frozen=True, eq=False)
class TimedStep:
    """A step of a text that is timed, with the number of tokens before it."""

    sample: Sample
    past: int


def token_speed(
    of: str,
    steps: Sequence[TimedStep],
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
    tokens = sum(new_tokens(step.sample) for step in steps) / len(steps)
    return TokenSpeed(
        of=of,
        tokens=tokens,
        past=sum(step.past for step in steps) / len(steps),
        float_rate=1e3 * tokens / latency.float_ms,
        quantized_rate=1e3 * tokens / latency.quantized_ms,
        speedup=latency.speedup,
    )
