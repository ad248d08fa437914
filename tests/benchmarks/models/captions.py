"""A vision-language encoder (two towers, as CLIP) trained here: made pictures and captions -> unit vectors.

A picture has two things of some shape, colour and size, one above, below or beside the other. Eight pictures
and their captions go in together; each differs from another in a word or two. No scene is in two splits.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import astuple, dataclass, replace

import numpy as np
from record import Counts, Feed, Outputs, Rng, by_name, per_feed, split_remainders
from trained import trained_model

SIDE, TOKENS, GROUP = 64, 18, 8
SHAPES = ("circle", "square", "triangle", "diamond", "ring", "cross", "star", "bar")
COLOURS = {
    "red": (215, 40, 40),
    "green": (40, 165, 70),
    "blue": (50, 80, 215),
    "yellow": (235, 215, 50),
    "orange": (240, 145, 40),
    "purple": (140, 60, 165),
    "pink": (245, 150, 190),
    "turquoise": (60, 205, 205),
}
SIZES = {"small": (6.0, 8.0), "large": (10.5, 13.0)}
RELATIONS = {"above": (0, -1), "below": (0, 1), "left": (-1, 0), "right": (1, 0)}
GROUNDS = {"white": 235, "grey": 130, "black": 25}
OTHERS = ("a", "of", "on", "the", "ground", "and", "there", "is", "it")
WORDS = (
    "",
    *SHAPES,
    *COLOURS,
    *SIZES,
    *RELATIONS,
    *GROUNDS,
    *OTHERS,
    "end",
)  # the end has the largest number
PARTS = split_remainders(11, 13, 16, 20)
PLACES = (np.mgrid[:SIDE, :SIDE] + 0.5)[::-1]


@dataclass(frozen=True)
class Scene:
    """What a picture shows: `first` is in the `relation` to `second`."""

    first: tuple[str, str, str]  # size, colour, shape
    second: tuple[str, str, str]
    relation: str
    ground: str


def _thing(rng: Rng) -> tuple[str, str, str]:
    size, colour, shape = (str(rng.choice(tuple(words))) for words in (SIZES, COLOURS, SHAPES))
    return size, colour, shape


def _scene(rng: Rng) -> Scene:
    relation, ground = str(rng.choice(tuple(RELATIONS))), str(rng.choice(tuple(GROUNDS)))
    return Scene(_thing(rng), _thing(rng), relation, ground)


def _changed(rng: Rng, scene: Scene) -> Scene:
    """Return a scene that differs in a word or two."""
    (size, colour, shape), other = scene.first, scene.second
    kind = int(rng.integers(7))
    if kind == 0:
        return replace(scene, first=other, second=scene.first)
    if kind == 1:
        return replace(scene, relation=str(rng.choice(tuple(RELATIONS))))
    if kind == 2:
        return replace(scene, first=(size, other[1], shape), second=(other[0], colour, other[2]))
    if kind == 3:
        return replace(scene, first=(size, colour, _thing(rng)[2]))
    if kind == 4:
        return replace(scene, second=(other[0], _thing(rng)[1], other[2]))
    if kind == 5:
        return replace(scene, first=(size, _thing(rng)[1], shape))
    return replace(scene, first=(_thing(rng)[0], colour, shape), ground=str(rng.choice(tuple(GROUNDS))))


def _opposite(relation: str) -> str:
    x, y = RELATIONS[relation]
    return next(word for word, turned in RELATIONS.items() if turned == (-x, -y))


def _same(scene: Scene) -> tuple[object, ...]:
    """Return what two descriptions of one scene have in common."""
    turned = Scene(scene.second, scene.first, _opposite(scene.relation), scene.ground)
    return min(astuple(scene), astuple(turned))


def _in_part(scene: Scene, part: str) -> bool:
    return zlib.crc32(repr(_same(scene)).encode()) % 20 in PARTS[part]


def _mask(shape: str, u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Return where a shape is, in coordinates of about -1 to 1."""
    away, wide = np.hypot(u, v), np.maximum(np.abs(u), np.abs(v))
    masks = {
        "circle": away < 0.95,
        "square": wide < 0.85,
        "triangle": (v > -0.9) & (v < 0.75) & (np.abs(u) < 0.58 * (v + 0.95)),
        "diamond": np.abs(u) + 0.8 * np.abs(v) < 0.95,
        "ring": (away < 1) & (away > 0.55),
        "cross": (np.minimum(np.abs(u), np.abs(v)) < 0.28) & (wide < 1),
        "star": away < 0.65 + 0.4 * np.cos(5 * np.arctan2(u, -v)),
        "bar": (np.abs(u) < 1) & (np.abs(v) < 0.38),
    }
    return masks[shape]


def _picture(rng: Rng, scene: Scene) -> np.ndarray:
    """Return a picture, float32 (3, SIDE, SIDE), of values in 0..1."""
    light = np.tensordot(rng.uniform(-25, 25, 2), PLACES / SIDE - 0.5, 1)
    picture = np.repeat((GROUNDS[scene.ground] + light)[None], 3, axis=0)
    step, middle = np.array(RELATIONS[scene.relation]), SIDE / 2 + rng.uniform(-3, 3, 2)
    across = step[::-1] * rng.uniform(-8, 8)
    apart = step * rng.uniform(13, 16) + across
    for (size, colour, shape), centre in ((scene.first, middle + apart), (scene.second, middle - apart)):
        radius, turn = rng.uniform(*SIZES[size]), rng.uniform(-0.25, 0.25)
        x, y = (PLACES - centre[:, None, None]) / radius
        mask = _mask(shape, x * np.cos(turn) + y * np.sin(turn), y * np.cos(turn) - x * np.sin(turn))
        picture[:, mask] = (np.array(COLOURS[colour]) + rng.normal(0, 14, 3))[:, None]
    picture += rng.normal(0, rng.uniform(2, 14), picture.shape)
    return (np.clip(picture, 0, 255) / 255).astype(np.float32)


def _caption(rng: Rng, scene: Scene) -> np.ndarray:
    """Return one of four ways to say it, as numbers of words, int64 (TOKENS,)."""
    first, second, relation = scene.first, scene.second, scene.relation
    if rng.random() < 0.5:
        first, second, relation = second, first, _opposite(relation)
    where = [relation, "of"] if relation in {"left", "right"} else [relation]
    if rng.random() < 0.6:
        words = ["a", *first, *where, "a", *second, "on", scene.ground, "ground"]
    else:
        words = ["on", scene.ground, "ground", "there", "is", "a", *second, "and", *where, "it", "a", *first]
    numbers = [WORDS.index(word) for word in (*words, "end")]
    return np.array([*numbers, *[0] * (TOKENS - len(numbers))])


def group(rng: Rng, part: str) -> tuple[np.ndarray, np.ndarray]:
    """Return pictures, float32 (GROUP, 3, SIDE, SIDE), and captions, int64 (GROUP, TOKENS)."""
    scenes: list[Scene] = []
    while len(scenes) < GROUP:
        scene = _changed(rng, scenes[rng.integers(len(scenes))]) if scenes else _scene(rng)
        if _in_part(scene, part) and _same(scene) not in map(_same, scenes):
            scenes.append(scene)
        elif rng.random() < 0.005:
            scenes.clear()  # few of its neighbours are in this split
    pictures = np.stack([_picture(rng, scene) for scene in scenes])
    return pictures, np.stack([_caption(rng, scene) for scene in scenes])


def _groups(seed: int, part: str, count: int) -> Iterator[tuple[Feed, int]]:
    rng = np.random.default_rng(seed)
    for _ in range(count):
        pictures, captions = group(rng, part)
        yield {"pictures": pictures, "captions": captions}, GROUP


@per_feed
def count(values: Outputs, size: int) -> Counts:
    """Pictures of each group whose own caption is the nearest of eight, of how many."""
    pictures, captions = values
    near = pictures @ captions.T
    # Ties count against the model: an encoder that says the same of everything finds nothing.
    right = (near >= np.diagonal(near)[:, None]).sum(axis=1) == 1
    return right.sum(), size


MODEL = trained_model(
    name="captions",
    data="made pictures",
    kind="vision-language encoder (CLIP)",
    task="250 groups of 8 made pictures: share whose caption is found among the eight, a word apart",
    samples=_groups,
    splits=by_name(351, 32, 100, 250),
    count=count,
)
