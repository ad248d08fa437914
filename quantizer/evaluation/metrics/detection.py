"""F1 and mean average precision of boxes.

Mean average precision is COCO's: pycocotools matches the boxes of each picture. What it makes of them is
computed here, as intervals need it for hundreds of draws of the pictures (`bootstrap_interval`).
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from .boxes import Boxes, Floats, boxes_of, in_crowds, matches
from .detector_outputs import Head, head_of
from .metric import Figures, Metric, MetricSource, Outputs, digest_of, of_sums
from .score_shift import Answers, ScoreShift, score_shift
from .true_boxes import true_boxes
from .truth import Place

SURE = 0.25
"""Boxes of the float model with this score or more stand for a missing truth."""

LEAST_SCORE = 0.05
"""Boxes from this score on are looked at for a shift of scores, whatever the metric counts."""

BOX_THRESHOLDS = (0.25, 0.5)
"""Usual thresholds of detectors."""

RECALLS = np.linspace(0.0, 1.0, 101)
"""Recalls at which COCO takes the precision."""

Pair = tuple[Boxes, Boxes]
"""The true boxes and the found ones of one picture."""


def f1(source: MetricSource) -> Metric:
    """Return the harmonic mean of precision and recall, in percent, of the boxes from a score on."""
    least = float(source.asked.options["iou"] or 0.0)

    def figures(pictures: Sequence[Pair]) -> Figures:
        counts = []
        for wanted, given in pictures:
            found = given.picked(~in_crowds(given, wanted, least))
            there = int((~wanted.crowd).sum())
            right = int((matches(found, wanted, least) >= 0).sum())
            counts.append((right, len(found.scores), there))
        return of_sums(np.array(counts, np.float64), _f1)

    return _metric(source, figures)


def _f1(sums: Floats) -> Floats:
    right, both = sums[:, 0], sums[:, 1] + sums[:, 2]
    # Nothing to find, and nothing given.
    return np.where(both > 0.0, 200.0 * right / np.where(both > 0.0, both, 1.0), 100.0)


def mean_average_precision(source: MetricSource) -> Metric:
    """Return COCO's mean average precision in percent: at IoU 0.5, or the mean of 0.5 to 0.95."""
    ious = np.array([0.5]) if source.asked.kind.name == "map50" else np.linspace(0.5, 0.95, 10)
    most = int(source.asked.options["max"] or 0)
    return _metric(source, lambda pictures: average_precision(pictures, ious, most))


def _metric(source: MetricSource, figures: Callable[[Sequence[Pair]], Figures]) -> Metric:
    head, note = head_of(source)
    truth = None if source.truth is None else true_boxes(source)
    agnostic = head.agnostic

    def truths(place: Place, floats: Outputs) -> tuple[Any, int]:
        mine = head.boxes(floats)
        if truth is None:
            return [boxes.picked(boxes.scores >= SURE) for boxes in mine], 0
        pictures = _pictures_of_scores(head, floats, len(mine))
        return [_counted(boxes, head) for boxes in truth.of(place, pictures)], pictures

    unlikely = replace(head, confidence=min(head.confidence, LEAST_SCORE))

    def scored(wanted: Sequence[Boxes], outputs: Outputs) -> list[Pair]:
        found = unlikely.boxes(outputs)
        nothing = boxes_of(np.zeros((0, 4)), np.zeros(0, np.int64))
        found += [nothing] * (len(wanted) - len(found))
        return [(true, mine) for true, mine in zip(wanted, found[: len(wanted)], strict=True)]

    def likely(pair: Pair) -> Pair:
        wanted, found = pair
        return wanted, found.picked(found.scores >= head.confidence)

    def shift(floats: Sequence[Any], quantized: Sequence[Any]) -> ScoreShift | None:
        a, b = (answers([pair for pairs in kept for pair in pairs]) for kept in (floats, quantized))
        asked = (head.confidence,) if head.confidence > LEAST_SCORE else ()
        return score_shift("boxes", a, b, sorted({*asked, *BOX_THRESHOLDS}))

    kind = source.asked.kind
    sources = f"the boxes of the float model with a score of {SURE:g} or more are the truth"
    notes = (note, f"{kind.name}: {sources if truth is None else truth.note}")
    return Metric(
        name=source.asked.text,
        title=source.asked.title + (", all classes as one" if agnostic else ""),
        kind=kind,
        truth=truths,
        scored=scored,
        figures=lambda found: figures([likely(pair) for pairs in found for pair in pairs]),
        finish=(lambda rows, cut: None) if truth is None else truth.check,
        digest=digest_of(source.asked, source.truth, repr(head)),
        assumed=notes,
        shift=shift,
    )


def answers(pictures: Sequence[Pair]) -> Answers:
    """Return the boxes found in pictures as answers: true ones are those of a true box at an IoU of 0.5.

    Boxes in a crowd are neither true nor false, and neither are those of classes without any true box, which
    mean average precision leaves out too: labels of some classes say nothing of the others.
    """
    labelled = np.unique(np.concatenate([true.classes for true, _ in pictures]))
    unit, scores, item, wanted, before = [], [], [], [], 0
    for at, (true, given) in enumerate(pictures):
        found = given.picked(~in_crowds(given, true, 0.5) & np.isin(given.classes, labelled))
        matched = matches(found, true, 0.5)
        unit.append(np.full(len(matched), at, np.int64))
        scores.append(found.scores)
        item.append(np.where(matched >= 0, matched + before, -1))
        wanted.append(float((~true.crowd).sum()))
        before += len(true.scores)
    items = np.concatenate(item)
    return Answers(np.concatenate(unit), np.concatenate(scores), items, items >= 0, np.array(wanted))


def _pictures_of_scores(head: Head, floats: Outputs, found: int) -> int:
    """Return how many pictures a sample has: rows of boxes name only those with a box."""
    return max(1, found) if head.form in ("rows7", "ssd-output") else found


def _counted(boxes: Boxes, head: Head) -> Boxes:
    """Return the true boxes of the classes that count, of one class where all are one."""
    if head.classes:
        boxes = boxes.picked(np.isin(boxes.classes, head.classes))
    if head.agnostic:
        return Boxes(boxes.corners, np.zeros_like(boxes.classes), boxes.scores, boxes.crowd)
    return boxes


@dataclass(frozen=True, eq=False)
class _ClassMatches:
    """The boxes found of one class, best first.

    Attributes:
        picture: of each box, int64 of shape [boxes].
        hit, miss: whether it is a true or a false one at each IoU, bool of shape [ious, boxes].
        wanted: true boxes of each picture, float64 of shape [pictures].
    """

    picture: npt.NDArray[np.int64]
    hit: npt.NDArray[np.bool_]
    miss: npt.NDArray[np.bool_]
    wanted: Floats

    def average_precisions(self, weights: Floats) -> Floats:
        """Return the mean of the average precisions at the IoUs for each row of weights; NaN without boxes.

        Precision at a recall is the best one at that recall or a higher one, as in COCO's `accumulate`.
        """
        there = weights @ self.wanted
        of_box = weights[:, self.picture]
        found = np.zeros((len(weights), len(self.hit)))
        for at, (hit, miss) in enumerate(zip(self.hit, self.miss, strict=True)):
            right, wrong = np.cumsum(of_box * hit, axis=1), np.cumsum(of_box * miss, axis=1)
            precision = right / np.maximum(right + wrong, np.spacing(1))
            best = np.maximum.accumulate(precision[:, ::-1], axis=1)[:, ::-1]
            recall = right / np.maximum(there, 1.0)[:, None]
            for row in range(len(weights)):
                places = np.searchsorted(recall[row], RECALLS, side="left")
                reached = places[places < best.shape[1]]
                found[row, at] = best[row, reached].sum() / RECALLS.size
        return np.where(there > 0.0, found.mean(axis=1), np.nan)


def average_precision(pictures: Sequence[Pair], ious: Floats, most: int) -> Figures:
    """Return COCO's mean average precision in percent, the mean over the classes that there are.

    Args:
        pictures: true and found boxes of each.
        ious: least overlaps of a match, over which the mean is taken.
        most: found boxes of a picture and class that count, the best.
    """
    matches = _matches(pictures, ious, most)

    def figure(weights: Floats) -> Floats:
        if not matches:  # there is nothing to find
            return np.full(len(weights), 100.0)
        found = np.stack([match.average_precisions(weights) for match in matches])
        known = ~np.isnan(found)
        total = np.where(known, found, 0.0).sum(axis=0)
        count = known.sum(axis=0)
        return np.asarray(100.0 * total / np.maximum(count, 1), np.float64)

    # Two models differ on a picture where another number of boxes is true or false at some overlap.
    counts = np.zeros((len(pictures), 2, len(ious)))
    for match in matches:
        for at, boxes in enumerate((match.hit, match.miss)):
            np.add.at(counts[:, at], match.picture, boxes.T)
    return Figures(len(pictures), figure, counts=counts.reshape(len(pictures), -1))


def _matches(pictures: Sequence[Pair], ious: Floats, most: int) -> list[_ClassMatches]:
    """Return the matches of each class that has true boxes, as pycocotools finds them."""
    from pycocotools.cocoeval import COCOeval

    classes = sorted({int(c) for wanted, _ in pictures for c in wanted.classes})
    if not classes:
        return []
    with contextlib.redirect_stdout(io.StringIO()):  # it prints what it does
        true = _coco_of_scores([wanted for wanted, _ in pictures], classes, with_scores=False)
        evaluation = COCOeval(
            true, _coco_of_scores([found for _, found in pictures], classes, with_scores=True), "bbox"
        )
        evaluation.params.iouThrs = ious
        evaluation.params.maxDets = [most]
        evaluation.params.areaRng, evaluation.params.areaRngLbl = [[0.0, 1e10]], ["all"]
        evaluation.evaluate()
    count, results = len(pictures), evaluation.evalImgs
    return [_class_matches(results[at * count : (at + 1) * count], len(ious)) for at in range(len(classes))]


def _class_matches(results: Sequence[Any], ious: int) -> _ClassMatches:
    """Return what pycocotools found of one class in each picture; None for a picture without such boxes."""
    wanted = np.array([0.0 if r is None else float(np.sum(np.logical_not(r["gtIgnore"]))) for r in results])
    there = [(at, r) for at, r in enumerate(results) if r is not None and len(r["dtScores"])]
    if not there:
        none = np.zeros((ious, 0), np.bool_)
        return _ClassMatches(np.zeros(0, np.int64), none, none, wanted)
    scores = np.concatenate([np.asarray(r["dtScores"], np.float64) for _, r in there])
    order = np.argsort(-scores, kind="mergesort")
    picture = np.concatenate([np.full(len(r["dtScores"]), at, np.int64) for at, r in there])
    matched = np.concatenate([np.asarray(r["dtMatches"]) for _, r in there], axis=1) != 0
    ignored = np.concatenate([np.asarray(r["dtIgnore"], bool) for _, r in there], axis=1)
    hit, miss = matched & ~ignored, ~matched & ~ignored
    return _ClassMatches(picture[order], hit[:, order], miss[:, order], wanted)


def _coco_of_scores(pictures: Sequence[Boxes], classes: Sequence[int], *, with_scores: bool) -> Any:
    """Return boxes as pycocotools takes them."""
    from pycocotools.coco import COCO

    annotations: list[dict[str, Any]] = []
    for at, boxes in enumerate(pictures):
        sizes = boxes.corners[:, 2:] - boxes.corners[:, :2]
        for box, size, kind, score, crowd in zip(
            boxes.corners, sizes, boxes.classes, boxes.scores, boxes.crowd, strict=True
        ):
            annotation = {
                "id": len(annotations) + 1,
                "image_id": at,
                "category_id": int(kind),
                "bbox": [float(box[0]), float(box[1]), float(size[0]), float(size[1])],
                "area": float(size[0] * size[1]),
                "iscrowd": int(crowd),
            }
            annotations.append({**annotation, "score": float(score)} if with_scores else annotation)
    made = COCO()
    made.dataset = {
        "images": [{"id": at} for at in range(len(pictures))],
        "categories": [{"id": kind} for kind in classes],
        "annotations": annotations,
    }
    made.createIndex()
    return made
