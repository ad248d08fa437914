"""`--target auto`: the target that this machine stands for, and why; and whether the default is another's.

Models are run by onnxruntime, here and in most programs that load a written model: it is a dependency, reads
every form, and its kernels are measured. So the processor decides, and every other runtime that is installed
is named with the option that takes it: a library that is there says nothing of where the model will run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from ...profiles.base.errors import ConfigError
from .processor import KINDS, Processor, ProcessorKind

AUTO = "auto"
"""In the place of a target's name: this machine's."""

Processors = Mapping[str, Sequence[ProcessorKind]]
"""The processors that each target is for, by the target's name; none where processors do not matter."""

OTHERS = {
    "TensorrtExecutionProvider": "tensorrt",
    "NvTensorRTRTXExecutionProvider": "tensorrt",
    "MIGraphXExecutionProvider": "migraphx",
    "QNNExecutionProvider": "qnn",
    "OpenVINOExecutionProvider": "openvino",
}
"""Execution providers of onnxruntime that have a target of their own."""


@dataclass(frozen=True)
class Installed:
    """The runtimes that are installed.

    Attributes:
        onnxruntime: its version.
        providers: the full names of the execution providers that it was built with.
        openvino: its version, "" where it is not installed.
    """

    onnxruntime: str
    providers: tuple[str, ...] = ()
    openvino: str = ""

    def others(self) -> Iterator[tuple[str, str]]:
        """Yield what else could run a model, for people, and the target for it."""
        if self.openvino:
            yield f"OpenVINO {self.openvino}", "openvino"
        for provider, target in OTHERS.items():
            if provider in self.providers and not (target == "openvino" and self.openvino):
                yield f"onnxruntime's {provider}", target


@dataclass(frozen=True)
class Choice:
    """The target of this machine.

    Attributes:
        target: its name.
        why: a sentence, which names it.
    """

    target: str
    why: str


def installed() -> Installed:
    """Return the runtimes that are installed here."""
    import onnxruntime

    try:
        openvino = version("openvino")
    except PackageNotFoundError:
        openvino = ""
    return Installed(onnxruntime.__version__, tuple(onnxruntime.get_available_providers()), openvino)


def fitting(processors: Processors, here: Processor) -> str:
    """Return the target that is for a processor, the first by name; "" where none is."""
    return min((name for name, kinds in processors.items() if here.kind in kinds), default="")


def choose(processors: Processors, here: Processor, runtimes: Installed) -> Choice:
    """Return the target for a processor and what is installed.

    Raises:
        ConfigError: no target is for such a processor; the message names those that there are.
    """
    target = fitting(processors, here)
    if not target:
        raise ConfigError(
            f"target '{AUTO}': no target is for this processor ({here}); choose one of "
            f"{', '.join(sorted(processors))}, or give a YAML file with --config"
        )
    why = f"target is {target}: this processor is {here}, and onnxruntime {runtimes.onnxruntime} runs models"
    for title, other in runtimes.others():
        why += f"; for {title}, which is installed too, give --target {other}"
    return Choice(target, f"{why}; {here.doubt}" if here.doubt else why)


def default_doubt(target: str, processors: Processors, here: Processor) -> str:
    """Return a sentence where a target that nobody named is not this machine's; "" where it is.

    Args:
        target: the default.
        processors: of all targets.
        here: this machine's.
    """
    meant = processors.get(target, ())
    if not meant or here.kind in meant:
        return ""
    better = fitting(processors, here)
    advice = (
        f"--target auto takes {better}" if better else "choose a target of your own (--config) to run it here"
    )
    kinds = " or ".join(KINDS[kind] for kind in meant)
    text = f"target is {target}, the default, which is for {kinds}; this processor is {here}: {advice}"
    return f"{text}; {here.doubt}" if here.doubt else text
