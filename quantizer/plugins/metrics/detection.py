"""F1 and mean average precision of boxes.

Mean average precision is COCO's: pycocotools matches the boxes of each picture. What it makes of them is
computed here, as intervals need it for hundreds of draws of the pictures (`bootstrap_interval`).
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

import numpy as np
import numpy.typing as npt

from ....profiles.base.findings import Finding
from ....profiles.samples.values import Box
from ...evaluation.metrics.metric import Figures, Found, Metric, MetricSource, Outputs, class_word, of_sums
from ...evaluation.metrics.truth import Place
from .boxes import Boxes, Floats, boxes_of, counted_matches, matches
from .detector_outputs import Head, head_of
from .thresholds import Answers, moved_thresholds
from .true_boxes import true_boxes

MIN_TRUTH_SCORE = 0.25
"""Boxes of the float model with this score or more stand for a missing truth."""

MIN_SHIFT_SCORE = 0.05
"""Boxes from this score on may have another threshold, whatever the metric counts."""

MIN_SHOWN_SCORE = 0.25
"""Least score of boxes shown for a picture."""

MIN_PAIRED_SCORE = 0.1
"""Least score of boxes matched with those of the other model."""

NO_BOXES = boxes_of(np.zeros((0, 4)), np.zeros(0, np.int64))

BOX_THRESHOLDS = (0.25, 0.5)
"""Usual thresholds of detectors."""

RECALLS = np.linspace(0.0, 1.0, 101)
"""Recalls at which COCO takes the precision."""

Pair = tuple[Boxes, Boxes]
"""The true boxes and the detected ones of one picture."""


def f1(source: MetricSource) -> Metric:
    """Return the harmonic mean of precision and recall, in percent, of the boxes from a score on."""
    min_iou = float(source.metric.options["iou"] or 0.0)

    def figures(pictures: Sequence[Pair]) -> Figures:
        counts = []
        for true, detected in pictures:
            _, matched = counted_matches(detected, true, min_iou)
            counts.append((int((matched >= 0).sum()), len(matched), int((~true.crowd).sum())))
        return of_sums(np.array(counts, np.float64), figure)

    def figure(sums: Floats) -> Floats:
        right, both = sums[:, 0], sums[:, 1] + sums[:, 2]
        # 100 % where there is nothing to find and nothing was detected.
        return np.where(both > 0.0, 200.0 * right / np.where(both > 0.0, both, 1.0), 100.0)

    return _metric(source, figures)


def mean_average_precision(source: MetricSource) -> Metric:
    """Return COCO's mean average precision in percent: at IoU 0.5, or the mean of 0.5 to 0.95."""
    ious = np.array([0.5]) if source.metric.kind.name == "map50" else np.linspace(0.5, 0.95, 10)
    most = int(source.metric.options["max"] or 0)
    return _metric(source, lambda pictures: average_precision(pictures, ious, most))


def _metric(source: MetricSource, figures: Callable[[Sequence[Pair]], Figures]) -> Metric:
    """Return a metric of the true and the detected boxes of each picture."""
    head, reading = head_of(source)
    file = None if source.truth is None else true_boxes(source)

    def truth(place: Place, floats: Outputs) -> tuple[Any, int]:
        float_boxes = head.boxes(floats)
        if file is None:
            return [boxes.subset(boxes.scores >= MIN_TRUTH_SCORE) for boxes in float_boxes], 0
        pictures = len(float_boxes)
        true = file.of_sample(place, pictures)
        if head.classes:
            true = [boxes.subset(np.isin(boxes.classes, head.classes)) for boxes in true]
        return true, pictures

    in_truth = {} if file is None else file.names

    def found(floats: Outputs, quantized: Outputs, names: Mapping[int, str]) -> list[tuple[Found, ...]]:
        sufficient = max(head.confidence, MIN_SHOWN_SCORE)
        return _found(paired, sufficient, floats, quantized, {**in_truth, **names})

    # Boxes with scores below the metric's are kept too: another threshold may be lower.
    permissive = replace(head, confidence=min(head.confidence, MIN_SHIFT_SCORE))
    paired = replace(head, confidence=MIN_PAIRED_SCORE)

    def scored(true: Sequence[Boxes], outputs: Outputs) -> list[Pair]:
        detected = permissive.boxes(outputs)
        detected += [NO_BOXES] * (len(true) - len(detected))
        return list(zip(true, detected[: len(true)], strict=True))

    def figures_of(kept: Sequence[Sequence[Pair]]) -> Figures:
        pairs = [pair for pairs in kept for pair in pairs]
        return figures([(true, boxes.subset(boxes.scores >= head.confidence)) for true, boxes in pairs])

    def advice(floats: Sequence[Any], quantized: Sequence[Any]) -> Iterator[Finding]:
        a, b = (answers([pair for pairs in kept for pair in pairs]) for kept in (floats, quantized))
        own_threshold = (head.confidence,) if head.confidence > MIN_SHIFT_SCORE else ()
        return moved_thresholds(a, b, sorted({*own_threshold, *BOX_THRESHOLDS}))

    metric = source.metric
    assumed = f"the boxes of the float model with a score of {MIN_TRUTH_SCORE:g} or more are the truth"
    return Metric(
        *source.called,
        metric.title,
        reading=repr(head),
        truth=truth,
        scored=scored,
        figures=figures_of,
        finish=(lambda rows, cut: None) if file is None else file.check_rows,
        assumed=(reading, f"{metric.kind.name}: {assumed if file is None else file.assumed}"),
        advice=advice,
        found=found,
    )


def _found(
    head: Head, sufficient: float, floats: Outputs, quantized: Outputs, names: Mapping[int, str]
) -> list[tuple[Found, ...]]:
    """Return the objects of each picture, the surest first; boxes that overlap half are one."""

    def box(boxes: Boxes, at: int | None) -> Box | None:
        if at is None:
            return None
        x0, y0, x1, y1 = (round(side, 1) for side in boxes.corners[at].tolist())
        return x0, y0, x1, y1

    def score(boxes: Boxes, at: int | None) -> float:
        return 0.0 if at is None else float(boxes.scores[at])

    pictures = []
    for a, b in zip_longest(head.boxes(floats), head.boxes(quantized), fillvalue=NO_BOXES):
        matched = matches(b, a, 0.5).tolist()
        of_float = {float_at: at for at, float_at in enumerate(matched) if float_at >= 0}
        pairs: list[tuple[int | None, int | None]] = [(at, of_float.get(at)) for at in range(len(a.scores))]
        pairs += [(None, at) for at, float_at in enumerate(matched) if float_at < 0]
        objects = [
            Found(
                name=class_word(names, int(b.classes[there] if here is None else a.classes[here])),
                float_box=box(a, here),
                quantized_box=box(b, there),
                float_score=None if here is None else float(a.scores[here]),
                quantized_score=None if there is None else float(b.scores[there]),
                changed=(score(a, here) >= sufficient) != (score(b, there) >= sufficient),
            )
            for here, there in pairs
            if max(score(a, here), score(b, there)) >= sufficient
        ]
        objects.sort(key=lambda one: -max(one.float_score or 0.0, one.quantized_score or 0.0))
        pictures.append(tuple(objects))
    return pictures


def answers(pictures: Sequence[Pair]) -> Answers:
    """Return detected boxes as answers, right at an IoU of 0.5, without classes that have no true box."""
    labelled = np.unique(np.concatenate([true.classes for true, _ in pictures]))
    unit, scores, right, wanted = [], [], [], []
    for picture, (true, detected) in enumerate(pictures):
        boxes, matched = counted_matches(detected.subset(np.isin(detected.classes, labelled)), true, 0.5)
        unit.append(np.full(len(matched), picture, np.int64))
        scores.append(boxes.scores)
        right.append(matched >= 0)
        wanted.append(float((~true.crowd).sum()))
    joined = np.concatenate(unit), np.concatenate(scores), np.concatenate(right)
    return Answers(*joined, np.array(wanted))


@dataclass(frozen=True, eq=False)
class _ClassMatches:
    """The boxes detected of one class, best first."""

    picture: npt.NDArray[np.int64]  # [boxes]
    hit: npt.NDArray[np.bool_]  # [ious, boxes]: true ones
    miss: npt.NDArray[np.bool_]  # [ious, boxes]: false ones
    wanted: Floats  # true boxes of each picture

    def average_precisions(self, weights: Floats) -> Floats:
        """Return the mean over IoUs of COCO's average precision, by row of weights; NaN without boxes."""
        wanted = weights @ self.wanted
        of_box = weights[:, self.picture]
        precisions = np.zeros((len(weights), len(self.hit)))
        for at, (hit, miss) in enumerate(zip(self.hit, self.miss, strict=True)):
            right, wrong = np.cumsum(of_box * hit, axis=1), np.cumsum(of_box * miss, axis=1)
            precision = right / np.maximum(right + wrong, np.spacing(1))
            best = np.maximum.accumulate(precision[:, ::-1], axis=1)[:, ::-1]
            recall = right / np.maximum(wanted, 1.0)[:, None]
            for row in range(len(weights)):
                places = np.searchsorted(recall[row], RECALLS, side="left")
                reached = places[places < best.shape[1]]
                precisions[row, at] = best[row, reached].sum() / RECALLS.size
        return np.where(wanted > 0.0, precisions.mean(axis=1), np.nan)


def average_precision(pictures: Sequence[Pair], ious: Floats, most: int) -> Figures:
    """Return COCO's mean average precision in percent; the best `most` boxes of a picture and class count."""
    classes = _matches(pictures, ious, most)

    def figure(weights: Floats) -> Floats:
        if not classes:  # there is nothing to find
            return np.full(len(weights), 100.0)
        precisions = np.stack([of_class.average_precisions(weights) for of_class in classes])
        known = ~np.isnan(precisions)
        total = np.where(known, precisions, 0.0).sum(axis=0)
        return np.asarray(100.0 * total / np.maximum(known.sum(axis=0), 1), np.float64)

    # Two models differ on a picture where another number of boxes is true or false at some overlap.
    counts = np.zeros((len(pictures), 2, len(ious)))
    for of_class in classes:
        for at, boxes in enumerate((of_class.hit, of_class.miss)):
            np.add.at(counts[:, at], of_class.picture, boxes.T)
    return Figures(len(pictures), figure, counts=counts.reshape(len(pictures), -1))


def _matches(pictures: Sequence[Pair], ious: Floats, most: int) -> list[_ClassMatches]:
    """Return the matches of each class that has true boxes, as pycocotools finds them."""
    from pycocotools.cocoeval import COCOeval

    classes = sorted({int(c) for true, _ in pictures for c in true.classes})
    if not classes:
        return []
    with contextlib.redirect_stdout(io.StringIO()):  # it prints what it does
        evaluation = COCOeval(
            _as_coco([true for true, _ in pictures], classes, with_scores=False),
            _as_coco([detected for _, detected in pictures], classes, with_scores=True),
            "bbox",
        )
        evaluation.params.iouThrs = ious
        evaluation.params.maxDets = [most]
        evaluation.params.areaRng, evaluation.params.areaRngLbl = [[0.0, 1e10]], ["all"]
        evaluation.evaluate()
    matched_classes, count = [], len(pictures)
    for at in range(len(classes)):
        results = evaluation.evalImgs[at * count : (at + 1) * count]  # None for a picture without such boxes
        wanted = [0.0 if r is None else float(np.sum(np.logical_not(r["gtIgnore"]))) for r in results]
        picture, scores = [np.zeros(0, np.int64)], [np.zeros(0)]
        matched = [np.zeros((len(ious), 0), np.bool_)]
        ignored = [np.zeros((len(ious), 0), np.bool_)]
        for number, result in enumerate(results):
            if result is not None and len(result["dtScores"]):
                picture.append(np.full(len(result["dtScores"]), number, np.int64))
                scores.append(np.asarray(result["dtScores"], np.float64))
                matched.append(np.asarray(result["dtMatches"]) != 0)
                ignored.append(np.asarray(result["dtIgnore"], np.bool_))
        order = np.argsort(-np.concatenate(scores), kind="mergesort")
        is_match, counts = np.concatenate(matched, axis=1), ~np.concatenate(ignored, axis=1)
        hit, miss = is_match & counts, ~is_match & counts
        matched_classes.append(
            _ClassMatches(np.concatenate(picture)[order], hit[:, order], miss[:, order], np.array(wanted))
        )
    return matched_classes


def _as_coco(pictures: Sequence[Boxes], classes: Sequence[int], *, with_scores: bool) -> Any:
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
    coco = COCO()
    coco.dataset = {
        "images": [{"id": at} for at in range(len(pictures))],
        "categories": [{"id": kind} for kind in classes],
        "annotations": annotations,
    }
    coco.createIndex()
    return coco
