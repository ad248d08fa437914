"""onnxruntime's execution providers: short names, devices, the package that has each, and whether one runs.

Where a provider does not start, onnxruntime itself runs the model on the CPU and prints a warning: here that
is an error. Nodes that a provider has no kernel for run on the CPU, and are counted in a note.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import onnxruntime as ort

from ..base.errors import ConfigError, nearest
from ..base.tool import note, tool_name

CPU = "CPUExecutionProvider"
SUFFIX = "ExecutionProvider"

TELLS_NODES = "session.record_ep_graph_assignment_info"
"""Session option with which onnxruntime (from 1.24) says which provider has which node."""


@dataclass(frozen=True)
class Provider:
    """An execution provider.

    Attributes:
        name: its full name.
        package: what to install to have it.
        device: the provider's option that a device after a colon is, as in cuda:1; "" for none.
    """

    name: str
    package: str
    device: str = ""


PROVIDERS: Mapping[str, Provider] = {
    "cpu": Provider(CPU, "onnxruntime"),
    "cuda": Provider("CUDAExecutionProvider", "onnxruntime-gpu", "device_id"),
    "tensorrt": Provider("TensorrtExecutionProvider", "onnxruntime-gpu", "device_id"),
    "openvino": Provider("OpenVINOExecutionProvider", "onnxruntime-openvino", "device_type"),
    "coreml": Provider("CoreMLExecutionProvider", "onnxruntime (on macOS)"),
    "dml": Provider("DmlExecutionProvider", "onnxruntime-directml (on Windows)", "device_id"),
    "rocm": Provider("ROCMExecutionProvider", "onnxruntime-rocm", "device_id"),
    "migraphx": Provider("MIGraphXExecutionProvider", "onnxruntime-migraphx", "device_id"),
    "qnn": Provider("QNNExecutionProvider", "onnxruntime-qnn", "backend_type"),
    "xnnpack": Provider("XnnpackExecutionProvider", "a build of onnxruntime with --use_xnnpack"),
}
"""By short name. A provider that is not here is known by its full name."""


def check_provider(text: str) -> str:
    """Return the full name of an execution provider that this onnxruntime has, with its device.

    Args:
        text: short or full name, with a device after a colon where one is chosen, as in "cuda:1".

    Returns:
        The full name, as in "CPUExecutionProvider" or "CUDAExecutionProvider:1".

    Raises:
        ConfigError: it has none of this name (the message lists those present, and what to install), or this
            one has no devices to choose from.
    """
    name, colon, device = text.partition(":")
    present = ort.get_available_providers()
    known = PROVIDERS.get(name.lower()) or _of_full_name(name)
    names = {word: full for full in present for word in (full.lower(), full.removesuffix(SUFFIX).lower())}
    wanted = names.get(name.lower(), "") if known is None else known.name
    if wanted not in present:
        install = f"; install {known.package} in place of the onnxruntime here" if known is not None else ""
        words = [*PROVIDERS, *present]
        raise ConfigError(
            f"provider '{text}': the installed onnxruntime does not have it; it has {', '.join(present)}"
            f"{install}.{'' if known is not None else nearest('cuda' if name == 'gpu' else name, words)}"
        )
    if colon and not (device and known is not None and known.device):
        raise ConfigError(
            f"provider '{text}': {wanted} takes no device after a colon; give the provider alone, as in cpu"
            if device
            else f"provider '{text}': a device is missing after the colon; give one, as in cuda:1"
        )
    return f"{wanted}:{device}" if device else wanted


def _of_full_name(name: str) -> Provider | None:
    return next((p for p in PROVIDERS.values() if p.name.lower() == name.lower()), None)


def with_options(provider: str) -> tuple[str, dict[str, str]]:
    """Return the name and the options that onnxruntime takes for what `check_provider` returned."""
    name, _, device = provider.partition(":")
    known = _of_full_name(name)
    return (name, {known.device: device}) if device and known is not None else (name, {})


def check_runs(session: ort.InferenceSession, provider: str) -> None:
    """Check that a session runs where it was asked to, and note how many of its nodes do not.

    Args:
        session: with `TELLS_NODES` in its options where nodes are to be counted.
        provider: what `check_provider` returned.

    Raises:
        ConfigError: the provider did not start, and onnxruntime would run the model on another.
    """
    name, _ = with_options(provider)
    used = session.get_providers()
    if used[:1] != [name]:
        raise not_started(provider, f"onnxruntime would run the model with {', '.join(used)} instead")
    if name != CPU and (elsewhere := _nodes_elsewhere(session, name)):
        note(elsewhere)


def not_started(provider: str, cause: str) -> ConfigError:
    """Return the error of a provider that is installed and does not start here.

    Args:
        provider: what `check_provider` returned.
        cause: what happened.
    """
    name, _ = with_options(provider)
    known = _of_full_name(name)
    package = "onnxruntime" if known is None else known.package
    return ConfigError(
        f"provider '{provider}': it is a part of the installed onnxruntime and does not start here: {cause}; "
        f"check that its device is there, with its driver and the libraries that {package} names as its "
        "requirements, or choose --provider cpu"
    )


def _nodes_elsewhere(session: ort.InferenceSession, name: str) -> str:
    """Return a sentence on the nodes that another provider runs; "" where none are, or nobody can tell."""
    try:
        parts = session.get_provider_graph_assignment_info()
    except (AttributeError, RuntimeError):  # before onnxruntime 1.24, or not asked for
        return ""
    counts: dict[str, dict[str, int]] = {}
    for part in parts:
        of_part = counts.setdefault(part.ep_name, {})
        for node in part.get_nodes():
            of_part[node.op_type] = of_part.get(node.op_type, 0) + 1
    total = sum(sum(found.values()) for found in counts.values())
    others = {op: n for ep, found in counts.items() if ep != name for op, n in found.items()}
    if not others:
        return ""
    worst = ", ".join(sorted(others, key=lambda op: (-others[op], op))[:5])
    return f"{name}: {sum(others.values())} of {total} nodes run on the CPU ({worst})"


def profiled_by(provider: str) -> str:
    """Return what a profile says made it: name and version of this program, and a provider that is no CPU.

    Other providers may differ from the CPU, and from themselves on another device, in the last bits.
    """
    with_what = "" if provider == CPU else f" with {provider} of onnxruntime {ort.__version__}"
    return f"{tool_name()}{with_what}"
