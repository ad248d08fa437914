"""Families of YAML and JSON files: profiles, Glow's, plans, configurations, checkpoints."""

from __future__ import annotations

import json
import random

from damage.base import QUANTIZE, RESUME
from damage.cases import Base, Case, Draw, whole, written
from damage.digests import sealed_checkpoint
from damage.text_damage import WORDS, damaged


def profiles(base: Base, draw: Draw) -> Case:
    """Profiles: shown, or quantized with."""
    name = ("profile.yaml", "profile.yaml", "profile-small.yaml")[draw.number % 3]
    what, content = damaged(base.bytes(name), draw.rng, draw.number)
    case = Case("profiles", f"{name}: {what}", ("show", name, "--json"), {name: content}, names=(name,))
    if name == "profile.yaml" and draw.rng.random() < 0.5:
        command = (*QUANTIZE, "-o", "out.onnx")
        return Case(
            case.family, case.what, command, case.files, names=(name,), outputs=("out.onnx",), check="loads"
        )
    return Case(case.family, case.what, case.command, case.files, names=(name,), check="means_what_it_says")


def glow_profiles(base: Base, draw: Draw) -> Case:
    """Profiles in Glow's format: shown, drawn as a table, or quantized with."""
    name = ("glow.yaml", "profile-glow.yaml")[draw.number % 2]
    what, content = damaged(base.bytes(name), draw.rng, draw.number)
    if name == "glow.yaml" and draw.rng.random() < 0.4:
        command = ("quantize", "model.onnx", "--profile", name, "-o", "out.onnx")
        outputs = ("out.onnx",)
        return Case(
            "glow profiles",
            f"{name}: {what}",
            command,
            {name: content},
            names=(name,),
            outputs=outputs,
            check="loads",
        )
    command = ("show", name, *draw.rng.choice(((), ("--json",))))
    return Case("glow profiles", f"{name}: {what}", command, {name: content}, names=(name,))


def plans(base: Base, draw: Draw) -> Case:
    """Plans: shown, or applied."""
    name = ("plan.yaml", "adjusted.yaml", "plan-small.yaml", "plan-adjusted.yaml")[draw.number % 4]
    what, content = damaged(base.bytes(name), draw.rng, draw.number)
    files = {name: content}
    if draw.number % 4 < 2 and draw.rng.random() < 0.6:
        command = ("quantize", "model.onnx", "--plan", name, "-o", "out.onnx")
        return Case(
            "plans", f"{name}: {what}", command, files, names=(name,), outputs=("out.onnx",), check="loads"
        )
    command = ("show", name, *draw.rng.choice(((), ("--json",), ("--json",))))
    return Case("plans", f"{name}: {what}", command, files, names=(name,), check="means_what_it_says")


def configurations(base: Base, draw: Draw) -> Case:
    """Settings and targets."""
    name = ("settings.yaml", "target.yaml")[draw.number % 2]
    if draw.number % 3 == 0:
        name, what, text = "settings.yaml", "one setting with any value", _one_setting(draw)
        content = whole(text)
    else:
        what, content = damaged(base.bytes(name), draw.rng, draw.number)
    command = (*QUANTIZE, "--config", name, "-o", "out.onnx", "--save-plan", "out.yaml")
    outputs = ("out.onnx", "out.yaml")
    # A setting that does not go with the model names itself: it may come from an option as well.
    return Case(
        "configurations",
        f"{name}: {what}",
        command,
        {name: content},
        names=(name, "keep_float '", "keep_16bit '"),
        outputs=outputs,
        check="settings_in_plan",
    )


def _one_setting(draw: Draw) -> str:
    from qprof_onnx.quantizer.targets.config import settings

    names = [*settings(), "runtime", "base", "sources", "target", "description"]
    name, value = names[draw.rng.randrange(len(names))], draw.pick(WORDS)
    if name in settings() and draw.rng.random() < 0.9:
        return f"settings:\n  {name}: {value}\n"
    return f"{name}: {value}\n"


def checkpoints(base: Base, draw: Draw) -> Case:
    """Checkpoints of a run that is resumed: damaged as they are, or with the digest of what they say now."""
    data = base.bytes("progress.qprof")
    head, body, profile = data.split(b"\n", 2)
    match draw.number % 4:
        case 0:
            what, content = damaged(data, draw.rng, draw.number)
        case 1:
            what, content = json_value(body, draw.rng)
            content = whole(head + b"\n" + written(content) + b"\n" + profile)
        case 2:
            what, content = json_value(body, draw.rng)
            content = sealed_checkpoint(whole(head + b"\n" + written(content) + b"\n" + profile))
        case _:
            what, content = damaged(profile, draw.rng, draw.number)
            content = sealed_checkpoint(((head + b"\n" + body + b"\n", 1), *content))
    command = RESUME
    sealed = draw.number % 4 >= 2
    return Case(
        "checkpoints",
        f"{what}, with its digest" if sealed else what,
        command,
        {"progress.qprof": content},
        names=("progress.qprof",),
        outputs=("out.yaml", "progress.qprof"),
        check="" if sealed else "same_profile",
    )


VALUES = (
    *(
        None,
        True,
        False,
        0,
        1,
        -1,
        3,
        6,
        1000,
        -1000,
        10**30,
        0.5,
        5.9,
        1e308,
        float("inf"),
        float("nan"),
        "5",
        "",
        "x",
    ),
    *("inf", "nan", "\x1b[31m", "x" * 3000, [], {}, [[]], [1, 2], {"a": 1}, [None]),
)


def json_value(data: bytes, rng: random.Random) -> tuple[str, tuple[tuple[bytes, int], ...]]:
    """Return a JSON text in which one value is another one, or one entry is gone or new."""
    document = json.loads(data)
    places = list(_places(document))
    parent, key = rng.choice(places)
    kind = rng.randrange(8)
    if kind == 0:
        del parent[key]
        what = f"without {key!r}"
    elif kind == 1 and isinstance(parent, dict):
        parent[str(rng.choice(VALUES))] = parent[key]
        what = f"one key more beside {key!r}"
    elif kind == 2 and isinstance(parent[key], list):
        parent[key] = parent[key] * 2
        what = f"{key!r} twice as long"
    else:
        parent[key] = rng.choice(VALUES)
        what = f"{key!r} is {str(parent[key])[:40]!r}"
    return what, whole(json.dumps(document))


def _places(value: object) -> list[tuple[dict | list, str | int]]:  # type: ignore[type-arg]
    items = list(
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    inner = [place for _, item in items for place in _places(item)]
    return [*((value, key) for key, _ in items), *inner]  # type: ignore[misc]
