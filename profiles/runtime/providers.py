"""onnxruntime's execution providers: short names, devices, the package that has each, and whether one runs.

Where a provider does not start, onnxruntime itself runs the model on the CPU and prints a warning: here that
is an error. Nodes that a provider has no kernel for run on the CPU, and are counted in a note.
"""

from __future__ import annotations

import os
import platform
import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import onnxruntime as ort
from onnxruntime.capi import onnxruntime_pybind11_state as state

from ..base.arguments import checks_arguments
from ..base.errors import ConfigError, nearest
from ..base.findings import Code, Finding
from ..base.tool import note, tool_name

# Cores that this process may use, and the memory that it uses.


def used_bytes() -> int:
    """Return the memory of this process in bytes; if the system does not report it, the peak so far."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        pass
    try:
        import resource
    except ImportError:  # Windows
        return 0
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


def cores() -> int:
    """Return the number of cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else (os.cpu_count() or 1)


# Exceptions that onnxruntime raises, and the first line of their text.

_NAMES = (
    *("EPFail", "Fail", "InvalidArgument", "InvalidGraph", "InvalidProtobuf", "NoSuchFile"),
    *("NotImplemented", "RuntimeException"),
)
RUNTIME_ERRORS: tuple[type[Exception], ...] = (
    *(getattr(state, name) for name in _NAMES),
    *(RuntimeError, TypeError, ValueError),
)
"""Exceptions of onnxruntime for a model or a sample that it refuses; they have no base class in common."""


_NOISE = re.compile(
    r"^\[ONNXRuntimeError\] : -?\d+ : \w+ : |Load model from .*? failed:|This is an invalid model\. "
    r"|/onnxruntime_src/\S+ (?:\S+ )?onnxruntime::[^)]*\)(?: const)? |(?:Type )?Error: |\[\w+Error\] ?"
)
_LONGEST = 400


def load_refusal(name: str, error: Exception, libraries: Sequence[str] = ()) -> str:
    """Return the message for a model that onnxruntime does not load: its error, and advice."""
    text = first_line(error)
    unknown = re.search(r"(\S+)\(-?\d+\) is not a registered function/op", text)
    if unknown is not None:
        without = f", nor has {', '.join(map(os.path.basename, libraries))}" if libraries else ""
        return (
            f"{name}: onnxruntime has no operator {unknown[1]}{without}; load the library that brings it "
            "with --custom-ops LIB, or, if it is a function of another file, put that into the model: "
            "qprof join MODEL.onnx --functions FILE -o WHOLE.onnx"
        )
    opsets = re.search(r"Opset (\d+) is under .* domain (\S+) is till opset (\d+)", str(error))
    if opsets is not None:
        return (
            f"{name}: opset {opsets[1]} of {opsets[2]} is too new: this onnxruntime runs up to {opsets[3]}; "
            f"export the model with opset {opsets[3]} or older, or install a newer onnxruntime"
        )
    return (
        f"{name}: onnxruntime cannot load it: {text}; check the model with onnx.checker, and that this "
        "onnxruntime has its operators"
    )


def first_line(error: Exception) -> str:
    """Return onnxruntime's error on one line, without its codes and places in its source."""
    text = str(error).strip()
    line = _NOISE.sub("", text.splitlines()[0]).strip() if text else ""
    if len(line) > _LONGEST:
        line = f"{line[: _LONGEST // 2]} ... {line[-_LONGEST // 2 :]}"
    return line.rstrip(".") or "without a reason"


CPU = "CPUExecutionProvider"

TELLS_NODES = "session.record_ep_graph_assignment_info"
"""Session option with which onnxruntime (from 1.24) says which provider has which node."""


PROVIDERS: Mapping[str, tuple[str, str, str]] = {
    "cpu": (CPU, "onnxruntime", ""),
    "cuda": ("CUDAExecutionProvider", "onnxruntime-gpu", "device_id"),
    "tensorrt": ("TensorrtExecutionProvider", "onnxruntime-gpu", "device_id"),
    "openvino": ("OpenVINOExecutionProvider", "onnxruntime-openvino", "device_type"),
    "coreml": ("CoreMLExecutionProvider", "onnxruntime (on macOS)", ""),
    "dml": ("DmlExecutionProvider", "onnxruntime-directml (on Windows)", "device_id"),
    "rocm": ("ROCMExecutionProvider", "onnxruntime-rocm", "device_id"),
    "migraphx": ("MIGraphXExecutionProvider", "onnxruntime-migraphx", "device_id"),
    "qnn": ("QNNExecutionProvider", "onnxruntime-qnn", "backend_type"),
    "xnnpack": ("XnnpackExecutionProvider", "a build of onnxruntime with --use_xnnpack", ""),
}
"""Short name -> full name, package to install, and the option for a device after a colon ("" for none). Other
providers have only their full name."""


def check_provider(text: str) -> str:
    """Return the full name of a provider of this onnxruntime, as in "CUDAExecutionProvider:1"."""
    name, colon, device = text.partition(":")
    present = ort.get_available_providers()
    full = {short: entry[0] for short, entry in PROVIDERS.items()}
    full |= {one.lower().removesuffix("executionprovider"): one for one in present}
    wanted = full.get(name.lower().removesuffix("executionprovider"), "")
    package, option = _package_and_option(wanted)
    if wanted not in present:
        install = f"; install {package} in place of the onnxruntime here" if wanted else ""
        did_you_mean = "" if wanted else nearest("cuda" if name == "gpu" else name, [*PROVIDERS, *present])
        raise ConfigError(
            f"provider '{text}': the installed onnxruntime does not have it; it has {', '.join(present)}"
            f"{install}.{did_you_mean}"
        )
    if colon and not (device and option):
        raise ConfigError(
            f"provider '{text}': {wanted} accepts no device after a colon; give only the provider, as in cpu"
            if device
            else f"provider '{text}': a device is missing after the colon; give one, as in cuda:1"
        )
    return f"{wanted}:{device}" if device else wanted


def _package_and_option(name: str) -> tuple[str, str]:
    """Return the package to install for a provider, and the option for its device, from `PROVIDERS`."""
    found = (entry[1:] for entry in PROVIDERS.values() if entry[0] == name)
    return next(found, ("onnxruntime", ""))


def with_options(provider: str) -> tuple[str, dict[str, str]]:
    """Return name and options for onnxruntime of a provider that `check_provider` returned."""
    name, _, device = provider.partition(":")
    return name, {_package_and_option(name)[1]: device} if device else {}


def _not_started(provider: str, cause: str) -> ConfigError:
    """Return the error for a provider that is installed and does not start here."""
    package, _ = _package_and_option(with_options(provider)[0])
    return ConfigError(
        f"provider '{provider}': it is a part of the installed onnxruntime and does not start here: {cause}; "
        f"check that its device is there, with its driver and the libraries that {package} names as its "
        "requirements, or choose --provider cpu"
    )


def _nodes_elsewhere(session: ort.InferenceSession, name: str) -> Finding | None:
    """Return the finding on nodes that another provider runs; None if there is no such node, or this is
    unknown."""
    try:
        assignments = session.get_provider_graph_assignment_info()
    except (AttributeError, RuntimeError):  # before onnxruntime 1.24, or not asked for
        return None
    nodes = [(part.ep_name, node.op_type) for part in assignments for node in part.get_nodes()]
    others = Counter(op_type for provider, op_type in nodes if provider != name)
    if not others:
        return None
    most = ", ".join(sorted(others, key=lambda op_type: (-others[op_type], op_type))[:5])
    sentence = f"{name}: {others.total()} of {len(nodes)} nodes run on the CPU ({most})"
    return Finding(Code.RUNS_ELSEWHERE, sentence, name, {"nodes": others.total(), "of": len(nodes)})


def profiled_by(provider: str) -> str:
    """Return the tool of a profile: this program, and a provider whose last bits may differ."""
    with_what = "" if provider == CPU else f" with {provider} of onnxruntime {ort.__version__}"
    return f"{tool_name()}{with_what}"


# Libraries of custom operators: loaded once for the process, known to every session opened afterwards.
#
# onnxruntime loads such a library into the process; it is code, and it runs with the rights of the user. So
# one is loaded only where the user names it, never because a model asks for it.

_libraries: dict[str, None] = {}
"""Resolved paths in the order in which they were given."""


@checks_arguments
def load_custom_operators(*libraries: str | os.PathLike[str]) -> None:
    """Load libraries of custom operators, for all models that this process runs from now on.

    Args:
        libraries: shared libraries built for onnxruntime's `RegisterCustomOps`; a library that is already
            loaded is skipped.

    Raises:
        ConfigError: there is no such file, or onnxruntime cannot load it.
    """
    for library in libraries:
        path = Path(library)
        if not path.is_file():
            raise ConfigError(f"{library}: no such library of custom operators; check the path")
        name = str(path.resolve())
        if name in _libraries:
            continue
        try:
            ort.SessionOptions().register_custom_ops_library(name)
        except RUNTIME_ERRORS as error:
            raise ConfigError(
                f"{library}: onnxruntime cannot load it: {first_line(error)}; give a shared library of "
                f"custom operators built for onnxruntime {ort.__version__} on {platform.machine()}"
            ) from None
        _libraries[name] = None


def loaded_libraries() -> tuple[str, ...]:
    """Return the paths of the libraries that are loaded, for processes that share the work."""
    return tuple(_libraries)


def new_session(model: str | bytes, options: ort.SessionOptions, provider: str) -> ort.InferenceSession:
    """Return a session of a path or bytes: the one place that makes them.

    If a provider fails, onnxruntime's wrapper would print it on stdout, and run on another one. ConfigError
    if the provider does not start here, one of `RUNTIME_ERRORS` if onnxruntime refuses the model.
    """
    if provider == CPU:
        return ort.InferenceSession(model, options, providers=[provider], enable_fallback=0)
    options.add_session_config_entry(TELLS_NODES, "1")
    try:
        session = ort.InferenceSession(model, options, providers=[with_options(provider)], enable_fallback=0)
    except RUNTIME_ERRORS as error:
        if _loads_on_the_cpu(model):
            raise _not_started(provider, first_line(error)) from None
        raise
    name, _ = with_options(provider)
    used = session.get_providers()
    if used[:1] != [name]:
        raise _not_started(provider, f"onnxruntime would run the model with {', '.join(used)} instead")
    if elsewhere := _nodes_elsewhere(session, name):
        note(elsewhere)
    return session


def _loads_on_the_cpu(model: str | bytes) -> bool:
    """Whether a model that another provider refuses is one that onnxruntime can run."""
    options = new_session_options()
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        ort.InferenceSession(model, options, providers=[CPU], enable_fallback=0)
    except RUNTIME_ERRORS:
        return False
    return True


MAX_COPIED_BYTES = 1 << 29
"""Bytes of float weights up to which onnxruntime may change their layout for its kernels, and fold
computations on them: both are copies in memory. It reads larger ones from the mapped file (DECISIONS.md,
85)."""


def new_session_options(float_bytes: int = 0, without: tuple[str, ...] = ()) -> ort.SessionOptions:
    """Return onnxruntime's default options, with the custom operators that are loaded.

    Above `MAX_COPIED_BYTES`, `float_bytes` of all open sessions stay in their file: slower, with other last
    bits; 0 for a session that is timed. `without` names optimizers of onnxruntime.
    """
    options = ort.SessionOptions()
    _share_memory()
    options.add_session_config_entry("session.use_env_allocators", "1")
    for library in _libraries:
        options.register_custom_ops_library(library)
    if float_bytes > MAX_COPIED_BYTES:
        disable_prepacking(options)
        without = (*without, "ConstantFolding")
    if without:
        options.add_session_config_entry("optimization.disable_specified_optimizers", ";".join(without))
    return options


@cache
def _share_memory() -> None:
    """Let all sessions on the CPU take tensors from one memory, whose pages are not cleared anew for each."""
    place = ort.OrtMemoryInfo("Cpu", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT)
    ort.create_and_register_allocator(place, None)


def disable_prepacking(options: ort.SessionOptions) -> None:
    """Let weights stay in place, in their file as a rule, instead of being laid out for the kernels."""
    entry = "session.disable_prepacking"
    try:
        options.get_session_config_entry(entry)
    except RuntimeError:  # it is not set; onnxruntime warns of an entry that is set again
        options.add_session_config_entry(entry, "1")
