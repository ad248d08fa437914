"""Boxes and how well they were found: overlap, non-maximum suppression, matching, F1."""

from __future__ import annotations

import numpy as np
from record import Scores
from scipy.optimize import linear_sum_assignment


def overlaps(some: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return the overlap (IoU) of each box with each other one; boxes are rows of (x0, y0, x1, y1)."""
    a, b = some[:, None, :], others[None, :, :]
    sides = np.minimum(a[..., 2:], b[..., 2:]) - np.maximum(a[..., :2], b[..., :2])
    shared = np.clip(sides, 0, None).prod(axis=-1)
    sizes = [np.clip(x[..., 2:] - x[..., :2], 0, None).prod(axis=-1) for x in (a, b)]
    return np.asarray(shared / np.maximum(sizes[0] + sizes[1] - shared, 1e-9))


def suppressed(boxes: np.ndarray, scores: np.ndarray, limit: float) -> np.ndarray:
    """Return the places of the boxes that no better one overlaps by more than the limit, best first."""
    order = np.argsort(-scores, kind="stable")
    covers = overlaps(boxes, boxes) > limit
    kept: list[int] = []
    for place in order:
        if not covers[place, kept].any():
            kept.append(int(place))
    return np.array(kept, np.int64)


def matched(overlap: np.ndarray, least: float) -> int:
    """Return how many rows and columns can be paired, one to one, at an overlap of at least `least`."""
    if not overlap.size:
        return 0
    rows, columns = linear_sum_assignment(overlap >= least, maximize=True)
    return int((overlap[rows, columns] >= least).sum())


def f1(totals: np.ndarray) -> Scores:
    """Return the harmonic mean of precision and recall from (hits, boxes given, boxes there are)."""
    hits, found, wanted = totals
    if found + wanted == 0:  # nothing to find, and nothing given
        return Scores(1.0, {"precision": 1.0, "recall": 1.0})
    parts = {"precision": hits / max(found, 1), "recall": hits / max(wanted, 1)}
    return Scores(float(2 * hits / (found + wanted)), parts)
