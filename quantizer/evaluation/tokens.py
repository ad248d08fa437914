"""Language models in the user's unit: greedy tokens that stay the same, tokens a second, memory of states."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy.typing as npt

from ...profiles.samples.values import Sample
from .latency import measure
from .options import LatencySettings
from .runtimes import Inputs

RunNumbered = Callable[[int], object]


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
        speedup: of the medians.
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
            f"{self.speedup:.2f} times as fast ({what}{past})"
        )


@dataclass(frozen=True)
class StateMemory:
    """What the state of a text takes in memory, besides the weights.

    Attributes:
        float_bytes, quantized_bytes: for each token, of both models.
    """

    float_bytes: float
    quantized_bytes: float


@dataclass(frozen=True)
class TokenSums:
    """What is kept of texts, sample by sample; `TokenSums()` before the first.

    Attributes:
        text: whether the tokens of the sequence so far were the same, at each position of its text.
        answer: the same for its answer.
        done: the sequences before it.
        tokens: of the sequence so far.
        float_bytes, quantized_bytes: of the state for each token, the largest.
    """

    text: tuple[bool, ...] = ()
    answer: tuple[bool, ...] = ()
    done: tuple[tuple[bool, tuple[bool, ...]], ...] = ()
    tokens: int = 0
    float_bytes: float = 0.0
    quantized_bytes: float = 0.0

    def added(
        self,
        sample: Sample,
        floats: npt.NDArray[Any],
        quantized: npt.NDArray[Any],
        states: tuple[Inputs, Inputs],
    ) -> TokenSums:
        """Return the sums with one sample more.

        Args:
            sample: a step of a text.
            floats, quantized: scores of tokens, [..., positions, tokens], of both models.
            states: what both were fed as their state.
        """
        now = self if sample.step else replace(self._closed(), tokens=0)
        same = (floats.argmax(-1).reshape(-1) == quantized.argmax(-1).reshape(-1)).tolist()
        if sample.next_tokens is not None:
            now = replace(now, text=(*now.text, *same))
        else:
            answer = now.answer or now.text[-1:]
            now = replace(now, answer=(*answer, *same))
        bytes_of = [sum(array.nbytes for array in state.values()) / max(now.tokens, 1) for state in states]
        if now.tokens:
            now = replace(
                now,
                float_bytes=max(now.float_bytes, bytes_of[0]),
                quantized_bytes=max(now.quantized_bytes, bytes_of[1]),
            )
        new = 1 if sample.next_tokens is None else sample.next_tokens.size
        return replace(now, tokens=now.tokens + new)

    def _closed(self) -> TokenSums:
        """Return the sums with the sequence that has come to its end among the others."""
        if not self.text and not self.answer:
            return self
        ended = (True, self.answer) if self.answer else (False, self.text)
        return replace(self, text=(), answer=(), done=(*self.done, ended))

    def agreement(self) -> TokenAgreement | None:
        """Return how often the tokens are the same: of answers, where there are some; None without a text."""
        done = self._closed().done
        answers = any(is_answer for is_answer, _ in done)
        found = [same for is_answer, same in done if is_answer or not answers]
        if not found:
            return None
        firsts = tuple(same.index(False) + 1 for same in found if not all(same))
        return TokenAgreement(answers, sum(map(sum, found)), sum(map(len, found)), len(found), firsts)

    def memory(self) -> StateMemory | None:
        """Return what the state takes for each token; None where it does not grow with them."""
        return StateMemory(self.float_bytes, self.quantized_bytes) if self.float_bytes else None


@dataclass(frozen=True, eq=False)
class TimedStep:
    """A step of a text that is timed.

    Attributes:
        sample: the step.
        past: tokens before it.
    """

    sample: Sample
    past: int

    @property
    def new(self) -> int:
        """Tokens of the step."""
        return 1 if self.sample.next_tokens is None else int(self.sample.next_tokens.size)


def token_speed(
    of: str,
    steps: Sequence[TimedStep],
    run_float: RunNumbered,
    run_quantized: RunNumbered,
    settings: LatencySettings,
) -> TokenSpeed:
    """Return the tokens a second of both models, in turns, by the time of the thread that runs them.

    With several threads by the clock: the time of one says nothing then.

    Args:
        of: "prompt" or "answer".
        steps: what is run, at least one.
        run_float, run_quantized: run a model on the sample of a step, given the number of that.
        settings: rounds, seconds and threads.
    """
    latency = measure(
        run_float,
        run_quantized,
        len(steps),
        settings,
        clock=time.thread_time if settings.threads == 1 else time.perf_counter,
    )
    tokens, past = (sum(values) / len(steps) for values in ([s.new for s in steps], [s.past for s in steps]))
    thousand = 1e3 * tokens
    rates = thousand / latency.float_ms, thousand / latency.quantized_ms
    return TokenSpeed(of, tokens, past, rates[0], rates[1], latency.speedup)


def states_of(names: Mapping[str, str], arrays: Inputs) -> Inputs:
    """Return the states among the inputs of a run."""
    return {name: arrays[name] for name in names}
