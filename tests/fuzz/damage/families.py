"""The families of cases: which file of the base is damaged, and which commands then read it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from damage.base import PARAMETERS, RANGES
from damage.cases import Base, Case, Content, Draw, Family, whole
from damage.damages import WORDS, of_bytes, of_json, of_onnx, of_text, sites


@dataclass(frozen=True)
class Reading:
    """A command that reads a damaged file, {} in its words, the files that it may leave, and the check."""

    words: str
    outputs: tuple[str, ...] = ()
    check: str = ""

    def case(self, family: str, name: str, what: str, content: Content) -> Case:
        """Return the case of a damaged file."""
        command = tuple(self.words.format(name).split())
        names = (name.removeprefix("cal/"), "cal", name.replace(".onnx", ".bin"))
        case = Case(family, f"{name}: {what}", command, {name: content}, names=names)
        return replace(case, outputs=self.outputs, check=self.check)


PLAN, MODEL = ("out.yaml",), ("out.onnx",)
SHOWN = Reading("show {} --json")
QUANTIZED = Reading("quantize model.onnx --profile {} --set cost_model=off -o out.onnx", MODEL, "loads")
PROFILED = Reading("dump-profile {} --data cal -o out.yaml", PLAN, "ranges_of_outputs")
WEIGHTS = Reading("quantize {} --as weight-only-8 -o out.onnx", MODEL, "close_outputs")
MODELS: Mapping[str, Sequence[Reading]] = {
    "control.onnx": (PROFILED, PROFILED, Reading("instrument {} -o out.onnx", MODEL), WEIGHTS),
    "outside.onnx": (PROFILED, Reading("instrument {} -o out.onnx", MODEL), WEIGHTS),
    "int8.onnx": (
        Reading("evaluate model.onnx {} --data cal --no-latency --json"),
        Reading("compare-layers model.onnx {} --data cal"),
    ),
    "model.onnx": (
        PROFILED,
        WEIGHTS,
        # The profile's fingerprint is that of the undamaged model: a refusal may name the profile.
        Reading(
            "quantize {} --profile profile.yaml --set cost_model=off -o out.onnx", MODEL, "close_outputs"
        ),
    ),
    "joined.onnx": (
        Reading(
            "export joined.yaml --model {} --parts parts",
            ("parts", "parts/first.int8.onnx", "parts/second.int8.onnx"),
        ),
    ),
}
CONFIGURED = Reading(
    "quantize model.onnx --profile profile.yaml --config {} --set cost_model=off -o out.onnx "
    "--save-plan out.yaml",
    (*MODEL, *PLAN),
)
APPLIED = Reading("quantize model.onnx --plan {} -o out.onnx", MODEL, "loads")
IMPORTED = Reading("import {} --model model.onnx -o out.yaml", PLAN)
READ: Mapping[str, Mapping[str, Sequence[Reading]]] = {
    "ONNX, bytes": MODELS,
    "ONNX, structure": MODELS,
    "profiles": {"profile.yaml": (SHOWN, QUANTIZED), "profile-small.yaml": (SHOWN,)},
    "glow profiles": {"glow.yaml": (SHOWN, QUANTIZED), "profile-glow.yaml": (Reading("show {}"),)},
    "plans": {
        "plan.yaml": (SHOWN, APPLIED),
        "adjusted.yaml": (SHOWN, APPLIED),
        "plan-small.yaml": (SHOWN,),
        "plan-adjusted.yaml": (SHOWN,),
    },
    "foreign ranges": dict.fromkeys(RANGES.values(), (IMPORTED, QUANTIZED)),
    "foreign parameters": dict.fromkeys(
        PARAMETERS.values(),
        (
            replace(IMPORTED, check="applies"),
            Reading("import {} --model model.onnx -o out.yaml --target openvino", PLAN, "applies"),
        ),
    ),
    "configurations": {"settings.yaml": (CONFIGURED,), "target.yaml": (CONFIGURED,)},
    "labels": dict.fromkeys(
        ("labels.txt", "labels.npy"),
        (
            Reading(
                "evaluate model.onnx int8.onnx --data cal --no-latency --json --labels {}", (), "accuracy"
            ),
        ),
    ),
}
"""Family -> file of the base -> the commands that read it."""


def damaged(family: str) -> Family:
    """Return the cases of a family: its files in turn, damaged as bytes, text, JSON or ONNX."""

    def case(base: Base, draw: Draw) -> Case:
        files, rng = READ[family], draw.rng
        name = list(files)[draw.number % len(files)]
        data, number = base.bytes(name), draw.number // len(files)
        if family == "ONNX, structure":
            what, content = of_onnx(data, rng, replace(draw, number=number).pick(sites(data)))
        elif data.startswith(b"{") and number % 2:
            what, content = of_json(data, rng)
        elif b"\0" in data or family == "ONNX, bytes":
            what, content = of_bytes(data, rng, number)
        elif name == "settings.yaml" and number % 2:
            what, content = "one setting with any value", whole(_one_setting(draw))
        else:
            what, content = of_text(data, rng, number)
        found = rng.choice(files[name]).case(family, name, what, content)
        also = {"model.onnx": ("profile.yaml",), "joined.onnx": ("part ", "joined.yaml", "parts/")}
        # A setting that does not go with the model names itself: it may come from an option as well.
        also |= dict.fromkeys(("settings.yaml", "target.yaml"), ("keep_float '",))
        return replace(found, names=(*found.names, *also.get(name, ())))

    return case


def _one_setting(draw: Draw) -> str:
    from qprof_onnx.quantizer.targets.config import settings

    names = [*settings(), "runtime", "base", "sources", "target", "description"]
    name, value = draw.rng.choice(names), draw.pick(WORDS)
    return f"settings:\n  {name}: {value}\n" if name in settings() else f"{name}: {value}\n"


FAMILIES: Mapping[str, Family] = {family: damaged(family) for family in READ}
"""Each has the same share of the cases."""
