"""KL thresholds against Glow's, and the batched search against the plain one."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from qprof_onnx.quantizer.numerics import kl_divergence as kl
from qprof_onnx.quantizer.numerics.kl_divergence import optimize_kl, rescale_histogram, row_sums

F32 = np.float32


def plain_optimize_kl(counts, minimum, maximum, levels, symmetric):
    """Glow SPEC E.3, one window after the other and one number after the other."""
    n = len(counts)
    if n < levels:
        return minimum, maximum
    counts = [F32(c) for c in counts]
    width = (F32(maximum) - F32(minimum)) / F32(n)
    a, z, best, found = 0, n - 1, math.inf, (minimum, maximum)
    while z - a + 1 >= levels:
        divergence = plain_divergence(counts, a, z, levels)
        if divergence < best:
            best = divergence
            found = float(F32(minimum) + F32(a) * width), float(F32(minimum) + F32(z + 1) * width)
        if symmetric:
            a, z = a + 1, z - 1
            continue
        sums = [counts[a] + counts[z], counts[a] + counts[a + 1], counts[z] + counts[z - 1]]
        k = sums.index(min(sums))
        a, z = ((a + 1, z - 1), (a + 2, z), (a, z - 2))[k]
    if symmetric:
        low, high = found[0] / minimum, found[1] / maximum
        found = (
            (found[0], float(F32(low * maximum))) if low > high else (float(F32(high * minimum)), found[1])
        )
    return found


def plain_divergence(counts, a, z, levels):
    window = counts[a : z + 1]
    length = len(window)
    p = list(window)
    p[0], p[-1] = added(counts[: a + 1]), added(counts[z:])
    each = length // levels
    q = [F32(0)] * length
    for k in range(levels):
        start, end = k * each, (k + 1) * each if k < levels - 1 else length
        filled = [c for c in window[start:end] if c != 0]
        for i in range(start, end):
            if filled and p[i] != 0:
                q[i] = added(filled) / F32(len(filled))
    p, q = smoothed(p), smoothed(q)
    p_total, q_total = added(p), added(q)
    if p_total == 0 or q_total == 0:
        return F32(0)
    total = F32(0)
    for x, y in zip(p, q, strict=True):
        if x > 0 and y > 0:
            share, other = x / p_total, y / q_total
            total += share * F32(math.log(float(share / other)))
    return total


def smoothed(values):
    zeros = sum(v == 0 for v in values)
    if zeros == len(values):
        return values
    taken = F32(1e-4) * F32(zeros) / F32(len(values) - zeros)
    return values if taken >= 1 else [F32(1e-4) if v == 0 else v - taken for v in values]


def added(values):
    total = F32(0)
    for v in values:
        total += v
    return total


@pytest.mark.slow
def test_thresholds_are_those_of_glow_bit_for_bit(glow):
    for case in glow.cases("calibration_kl_generated"):
        counts = glow.counts(case["bins"], case["histogram"])
        low, high = glow.real(case["min"]), glow.real(case["max"])
        found = optimize_kl(counts, low, high, case["quantized_bins"], case["symmetric"])
        assert list(found) == glow.reals(case["expected"])


@pytest.mark.parametrize("symmetric", [False, True])
@settings(max_examples=15, deadline=None)  # the plain search takes a tenth of a second
@given(
    counts=st.lists(
        st.one_of(st.just(0), st.integers(0, 50), st.integers(0, 1 << 26)), min_size=1, max_size=90
    ),
    levels=st.sampled_from([2, 7, 15, 16]),
    data=st.data(),
)
def test_batched_and_plain_search_agree(symmetric, counts, levels, data):
    low = data.draw(st.floats(-100.0, -0.0078125, width=32))
    high = data.draw(st.floats(0.0078125, 100.0, width=32))
    array = np.asarray(counts, np.float32)
    assert optimize_kl(array, low, high, levels, symmetric) == plain_optimize_kl(
        array, low, high, levels, symmetric
    )


@pytest.mark.parametrize("batch", [1, 3000, 1 << 20])
def test_the_size_of_a_batch_changes_nothing(batch, monkeypatch):
    rng = np.random.default_rng(0)
    counts = np.histogram(rng.standard_t(4, 5000), 700)[0].astype(np.float32)
    expected = optimize_kl(counts, -5.0, 5.0)
    monkeypatch.setattr(kl, "BATCH", batch)
    assert optimize_kl(counts, -5.0, 5.0) == expected


@pytest.mark.parametrize("rows", [1, 2, 3, 8, 16, 100])
def test_row_sums_are_those_from_left_to_right(rows):
    values = np.random.default_rng(rows).lognormal(size=(rows, 1999)).astype(np.float32)
    assert row_sums(values).tolist() == np.add.accumulate(values, axis=1)[:, -1].tolist()
    # ... which numpy's own sum does not give, so the test could fail
    assert rows < 8 or row_sums(values).tolist() != values.sum(axis=1).tolist()


def test_rescaled_histograms_are_those_of_glow(glow):
    cases = (
        glow.cases("rescale_histogram_generated") + glow.document("histogram")["rescale_histogram"]["cases"]
    )
    for case in cases:
        counts = np.asarray(case["histogram"], np.float32)
        source, destination = tuple(glow.reals(case["src"])), tuple(glow.reals(case["dst"]))
        assert rescale_histogram(counts, source, destination).tolist() == glow.reals(case["expected"]), case


def test_rescaling_to_a_wider_range_drops_rounding_leftovers_only():
    counts = np.random.default_rng(0).integers(0, 1000, 2000).astype(np.float32)
    wider = rescale_histogram(counts, (-1.0, 2.0), (-2.0, 2.0))
    assert counts.sum() - counts.size <= wider.sum() <= counts.sum()


def test_no_argument_is_changed():
    counts = np.arange(300, dtype=np.float32)
    before = counts.copy()
    optimize_kl(counts, -1.0, 1.0)
    rescale_histogram(counts, (-1.0, 1.0), (-2.0, 2.0))
    assert counts.tolist() == before.tolist()
