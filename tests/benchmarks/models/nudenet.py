"""NudeNet, a YOLOv8 with a concatenated head: a picture -> boxes of faces and of parts of the body.

Only faces are asked for here. The last Concat joins boxes in pixels (up to 320) and scores (up to 1).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import cv2
import numpy as np
import pictures
import text
from boxes import f1, matched, overlaps, suppressed
from PIL import Image
from record import Counts, Feed, Outputs, RealModel, package_folder, per_feed

SIDE, FACES = 320, (4 + 1, 4 + 12)  # rows of the output that score a face
# Portraits with the box of the face as shares of the longer side (x0, y0, x1, y1), checked by eye.
Portrait = tuple[tuple[str, str], tuple[float, float, float, float]]
CALIBRATION: tuple[Portrait, ...] = (
    (("face_recognition", "tests/test_images/obama.jpg"), (0.328, 0.138, 0.538, 0.375)),
    (("face_recognition", "tests/test_images/obama2.jpg"), (0.163, 0.256, 0.400, 0.534)),
)
TUNING: tuple[Portrait, ...] = (
    (("face_recognition", "tests/test_images/obama3.jpg"), (0.266, 0.138, 0.400, 0.262)),
)
EVALUATION: tuple[Portrait, ...] = (
    (("face_recognition", "tests/test_images/biden.jpg"), (0.181, 0.116, 0.322, 0.269)),
    (("skimage", "data/astronaut.png"), (0.338, 0.163, 0.534, 0.350)),
    (("matplotlib", "mpl-data/sample_data/grace_hopper.jpg"), (0.281, 0.238, 0.597, 0.569)),
)
WITHOUT = {  # photographs with nobody in them
    "calibration": (("skimage", "data/coffee.png"), ("skimage", "data/motorcycle_left.png")),
    "tuning": (("skimage", "data/chelsea.png"), ("skimage", "data/rocket.jpg")),
    "evaluation": (("sklearn", "datasets/images/china.jpg"), ("sklearn", "datasets/images/flower.jpg")),
}


def _turned(rng: np.random.Generator, portrait: Portrait, side: int) -> tuple[np.ndarray, list[float] | None]:
    """Return a square piece of a portrait, turned a little, and where the face is in it."""
    name, shares = portrait
    whole = pictures.photograph(*name)
    box = np.array(shares).reshape(2, 2) * max(whole.shape[:2])
    face = float(np.linalg.norm(box[1] - box[0]))
    centre = box.mean(axis=0) + rng.uniform(-0.6, 0.6, 2) * face
    scale = side / face / rng.uniform(1.6, 4.5)
    move = cv2.getRotationMatrix2D([float(v) for v in centre], float(rng.uniform(-12, 12)), scale)
    move[:, 2] += side / 2 - centre
    if rng.random() < 0.5:
        move = np.diag([-1.0, 1.0]) @ move + np.array([[0, 0, side], [0, 0, 0]])
    piece = cv2.warpAffine(whole, move, (side, side), flags=cv2.INTER_AREA, borderValue=(114, 114, 114))
    # The middle of the face moves with the picture; its size is kept: the turn is small.
    middle = move @ [*box.mean(axis=0), 1.0]
    half = (box[1] - box[0]) / 2 * scale
    found = [*(middle - half), *(middle + half)]
    inside = min(found) >= 0 and max(found) <= side
    return piece, [float(v) for v in found] if inside else None


def _pictures(
    seed: int, count: int, portraits: Sequence[Portrait], split: str
) -> Iterator[tuple[Feed, list[list[float]]]]:
    """Yield pictures of one piece, or of two by two, some of them with nobody in them."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        tiles = int(rng.integers(1, 3))
        side, boxes = SIDE // tiles, []
        picture = np.zeros((SIDE, SIDE, 3), np.uint8)
        for top in range(0, SIDE, side):
            for left in range(0, SIDE, side):
                empty = rng.random() < 0.35
                piece, box = _turned(rng, portraits[rng.integers(len(portraits))], side)
                if empty or box is None:
                    (ground,) = pictures.crops(rng, WITHOUT[split][rng.integers(2) :][:1], 1, 240)
                    piece = cv2.resize(ground, (side, side))
                else:
                    boxes.append([box[0] + left, box[1] + top, box[2] + left, box[3] + top])
                light, contrast = rng.uniform(-40, 40), rng.uniform(0.5, 1.3)
                piece = np.clip((piece - 128.0) * contrast + 128 + light, 0, 255)
                picture[top : top + side, left : left + side] = piece
        noisy = picture + rng.normal(0, rng.uniform(0, 25), picture.shape)
        worn = text.weathered(rng, Image.fromarray(np.clip(noisy, 0, 255).astype(np.uint8)))
        yield {"images": np.asarray(worn, np.float32).transpose(2, 0, 1)[None] / 255}, boxes


def boxes_of(output: np.ndarray) -> np.ndarray:
    """Return the boxes of faces (count, 4) in an output (22, places): centre, size, 18 scores; see YOLOv8."""
    score = output[list(FACES)].max(axis=0)
    likely = score > 0.25
    centre, half = output[:2, likely].T, output[2:4, likely].T / 2
    found = np.concatenate([centre - half, centre + half], axis=1)
    return found[suppressed(found, score[likely], 0.45)]


@per_feed
def count(values: Outputs, boxes: Sequence[Sequence[float]]) -> Counts:
    """Faces found, boxes given and faces there are; found is an overlap (IoU) of 0.5."""
    found, wanted = boxes_of(values[0][0].astype(np.float64)), np.array(boxes, np.float64).reshape(-1, 4)
    return matched(overlaps(found, wanted), 0.5), len(found), len(wanted)


MODEL = RealModel(
    name="nudenet",
    source="nudenet",
    kind="detector with a concatenated head (YOLOv8)",
    task="240 pictures of turned, dimmed and noisy portraits: F1 of the faces' boxes at an overlap of 0.5",
    path=lambda folder: package_folder("nudenet") / "320n.onnx",
    samples=_pictures,
    splits={
        "calibration": (131, 32, CALIBRATION, "calibration"),
        "tuning": (132, 100, TUNING, "tuning"),
        "evaluation": (133, 240, EVALUATION, "evaluation"),
    },
    count=count,
    score=f1,
    helpers=("pictures", "text", "boxes"),
)
