"""A pose net, trained here: a picture of a drawn figure -> where its eleven joints are, in pixels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from PIL import Image, ImageDraw
from record import Counts, Feed, Outputs, Rng, per_feed
from trained import trained_model

SIDE, LARGER, NEAR = 96, 2, 2.5  # pixels; the drawing is made larger; a joint within NEAR pixels is right
# A joint, the one that it hangs on, the usual angle (0: down, in turns), how far it swings, the length.
LIMBS = (
    (1, 0, 0.00, 0.05, 0.30),  # neck to hips
    (2, 0, 0.50, 0.06, 0.17),  # head
    (3, 0, 0.14, 0.20, 0.17),  # elbows
    (4, 3, 0.18, 0.25, 0.16),  # hands
    (5, 0, -0.14, 0.20, 0.17),
    (6, 5, -0.18, 0.25, 0.16),
    (7, 1, 0.05, 0.10, 0.21),  # knees
    (8, 7, 0.02, 0.10, 0.20),  # feet
    (9, 1, -0.05, 0.10, 0.21),
    (10, 9, -0.02, 0.10, 0.20),
)
JOINTS = len(LIMBS) + 1


def _skeleton(rng: Rng) -> np.ndarray:
    """Return joints in pixels, (JOINTS, 2), all of them in the picture."""
    while True:
        joints, size, lean = np.zeros((JOINTS, 2)), rng.uniform(0.6, 0.95) * SIDE, rng.uniform(-0.05, 0.05)
        for joint, parent, angle, swing, length in LIMBS:
            turn = 2 * np.pi * (angle + lean + rng.uniform(-swing, swing))
            reach = size * length * rng.uniform(0.85, 1.1)
            joints[joint] = joints[parent] + reach * np.array([np.sin(turn), np.cos(turn)])
        low, high = joints.min(axis=0), joints.max(axis=0)
        if (high - low < SIDE - 12).all():
            return joints - low + rng.uniform(6, SIDE - 6 - (high - low))


def _clutter(rng: Rng, draw: ImageDraw.ImageDraw) -> None:
    """Draw boxes, discs and lines, the latter as thick as limbs."""
    for _ in range(int(rng.integers(3, 14))):
        ink, kind = tuple(map(int, rng.integers(0, 256, 3))), rng.integers(3)
        corners = [float(v) for v in rng.uniform(-10, SIDE + 10, 4) * LARGER]
        left, right = sorted(corners[::2])
        top, bottom = sorted(corners[1::2])
        if kind == 2:
            draw.line(corners, ink, int(rng.integers(1, 5) * LARGER))
        elif kind == 1:
            draw.ellipse((left, top, right, bottom), ink)
        else:
            draw.rectangle((left, top, right, bottom), ink)


def _dressed(rng: Rng, draw: ImageDraw.ImageDraw, joints: np.ndarray) -> None:
    """Draw the figure: legs, then body, arms and head, each with its colour and width."""
    skin, shirt, trousers = (tuple(map(int, rng.integers(0, 256, 3))) for _ in range(3))
    width, points = rng.uniform(0.035, 0.06) * SIDE * LARGER, [tuple(p) for p in joints * LARGER]
    for joint, parent, *_ in (*LIMBS[6:], LIMBS[0], *LIMBS[2:6]):
        ink, wide = (trousers, 1.2) if joint >= 7 else (shirt, 2.6) if joint == 1 else (skin, 0.9)
        draw.line([points[parent], points[joint]], ink, round(width * wide))
        for x, y in (points[parent], points[joint]):
            r = width * min(wide, 1.2) / 2
            draw.ellipse((x - r, y - r, x + r, y + r), ink)
    (x, y), r = points[2], width * 1.5
    draw.ellipse((x - r, y - r, x + r, y + r), skin)


def figures(rng: Rng, count: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield pictures, uint8 (3, SIDE, SIDE), and joints in pixels, float64 (JOINTS, 2)."""
    for _ in range(count):
        image = Image.new("RGB", (SIDE * LARGER,) * 2, tuple(map(int, rng.integers(0, 256, 3))))
        draw, joints = ImageDraw.Draw(image), _skeleton(rng)
        _clutter(rng, draw)
        _dressed(rng, draw, joints)
        small = np.asarray(image.resize((SIDE, SIDE), Image.Resampling.BOX), np.float64)
        slope = rng.uniform(-25, 25, 2)
        light = np.linspace(-1, 1, SIDE)[:, None] * slope[0] + np.linspace(-1, 1, SIDE) * slope[1]
        noisy = small + light[..., None] + rng.normal(0, rng.uniform(1, 10), small.shape)
        yield np.clip(noisy, 0, 255).astype(np.uint8).transpose(2, 0, 1), joints


def _pairs(seed: int, count: int) -> Iterator[tuple[Feed, list[list[float]]]]:
    for picture, joints in figures(np.random.default_rng(seed), count):
        yield {"picture": (picture / 255).astype(np.float32)[None]}, joints.round(2).tolist()


@per_feed
def count(values: Outputs, joints: Sequence[Sequence[float]]) -> Counts:
    """Joints of each figure that are within NEAR pixels of where they are, of how many."""
    distance = np.hypot(*(values[0][0] - np.array(joints)).T)
    return (distance <= NEAR).sum(), JOINTS


MODEL = trained_model(
    name="pose",
    data="drawn figures",
    kind="pose, depthwise with SiLU, coordinates",
    task="480 drawn figures among shapes: share of the joints that are told within 2.5 pixels of 96",
    samples=_pairs,
    splits={
        "calibration": (431, 48),
        "tuning": (432, 240),
        "evaluation": (433, 480),
    },
    count=count,
)
