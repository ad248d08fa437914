"""Boxes: overlap, non-maximum suppression, matching. Boxes are rows of (x0, y0, x1, y1) in pixels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Boxes:
    """Boxes of one picture."""

    corners: Floats  # [boxes, 4]
    classes: Ints
    scores: Floats  # 1 for true ones
    crowd: npt.NDArray[np.bool_]  # true boxes around many objects, which may be found any number of times

    def subset(self, which: npt.NDArray[np.generic]) -> Boxes:
        """Return some of the boxes, by a mask or by their places."""
        return Boxes(self.corners[which], self.classes[which], self.scores[which], self.crowd[which])


def boxes_of(corners: Floats, classes: Ints, scores: Floats | None = None) -> Boxes:
    """Return boxes; without scores true ones."""
    ones = np.ones(len(corners)) if scores is None else scores
    corners = np.asarray(corners, np.float64).reshape(-1, 4)
    return Boxes(corners, np.asarray(classes, np.int64), ones, np.zeros(len(corners), np.bool_))


def overlaps(some: Floats, others: Floats) -> Floats:
    """Return the intersection over union of each box with each other one, [some, others]."""
    a, b = some[:, None, :], others[None, :, :]
    sides = np.clip(np.minimum(a[..., 2:], b[..., 2:]) - np.maximum(a[..., :2], b[..., :2]), 0.0, None)
    shared = sides.prod(axis=-1)
    sizes = [np.clip(x[..., 2:] - x[..., :2], 0.0, None).prod(axis=-1) for x in (a, b)]
    return np.asarray(shared / np.maximum(sizes[0] + sizes[1] - shared, 1e-12), np.float64)


def non_max_suppression(boxes: Boxes, limit: float, most: int) -> Boxes:
    """Return at most `most` boxes, best first, that no better one of their class overlaps."""
    order = np.argsort(-boxes.scores, kind="stable")
    ranked = boxes.subset(order)
    kept: list[int] = []
    left = np.arange(len(order))
    while left.size and len(kept) < most:
        best, others = left[0], left[1:]
        kept.append(int(best))
        covered = overlaps(ranked.corners[best : best + 1], ranked.corners[others])[0] > limit
        left = others[~(covered & (ranked.classes[others] == ranked.classes[best]))]
    return ranked.subset(np.array(kept, np.int64))


def matches(detected: Boxes, true: Boxes, min_iou: float) -> Ints:
    """Return the true box that each detected one matches, int64 [detected]; -1 for a false one.

    As in COCO's evaluation the best come first, and take the free one of their class that they overlap most.
    """
    matched = np.full(len(detected.scores), -1, np.int64)
    if not len(detected.scores) or not len(true.scores):
        return matched
    same = detected.classes[:, None] == true.classes[None, :]
    overlap = np.where(same & ~true.crowd[None, :], overlaps(detected.corners, true.corners), -1.0)
    free = np.ones(len(true.scores), bool)
    for at in np.argsort(-detected.scores, kind="stable"):
        best = int(np.argmax(np.where(free, overlap[at], -1.0)))
        if free[best] and overlap[at, best] >= min_iou:
            free[best] = False
            matched[at] = best
    return matched


def counted_matches(detected: Boxes, true: Boxes, min_iou: float) -> tuple[Boxes, Ints]:
    """Return the detected boxes, without those that lie in a crowd of their class, and the match of each."""
    matched = matches(detected, true, min_iou)
    counts = (matched >= 0) | ~_in_crowds(detected, true, min_iou)
    return detected.subset(counts), matched[counts]


def _in_crowds(detected: Boxes, true: Boxes, min_share: float) -> npt.NDArray[np.bool_]:
    """Return which boxes lie in a crowd of their class, by the share of the box that is in it."""
    crowd = true.subset(true.crowd)
    if not len(crowd.scores):
        return np.zeros(len(detected.scores), np.bool_)
    a, b = detected.corners[:, None, :], crowd.corners[None, :, :]
    sides = np.clip(np.minimum(a[..., 2:], b[..., 2:]) - np.maximum(a[..., :2], b[..., :2]), 0.0, None)
    size = np.clip(detected.corners[:, 2:] - detected.corners[:, :2], 0.0, None).prod(axis=-1)
    inside = sides.prod(axis=-1) / np.maximum(size[:, None], 1e-12) >= min_share
    same = detected.classes[:, None] == crowd.classes[None, :]
    return np.asarray((inside & same).any(axis=1), np.bool_)
