"""`join`: parts of a model, each in a separate file, as one ONNX file.

The nodes and tensors of a part get its name in front: `encoder:/conv1/Conv`. Inputs that no part makes keep
their name. Every output of a part is an output of the whole, so that no step between merges nodes of two
parts, and the whole can be split again.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx_ir as ir

from ....profiles.base.arguments import checks_arguments
from ....profiles.base.errors import ConfigError, ModelError
from ....profiles.base.output_files import replacing_together
from ...evaluation.runtimes import open_session
from ...model.loading import load_model
from ...model.output_paths import FilesRead, check_outputs
from ...model.saving import has_external_data, save_model
from ...prepare.cleanup import name_nodes, name_values, unshare_names
from ...prepare.inlining import inline_functions, raise_ir_version, unlist_initializers
from .connections import Sources, connections, joined_name, misfit
from .parts import SEPARATOR, Part, Port, part_name_problem, shape_of, write_parts

Files = Iterable[str | os.PathLike[str]]


@dataclass(frozen=True)
class Joined:
    """A model joined of several, and how its parts were connected."""

    parts: tuple[str, ...]
    inputs: Mapping[str, tuple[str, ...]]  # of the whole -> what reads them, as "PART:INPUT"
    connections: Mapping[str, str]  # "PART:INPUT" -> the output that it reads, as "PART:OUTPUT"
    outputs: tuple[str, ...]  # of the whole, in its order


@checks_arguments
def join(
    models: Files,
    output: str | os.PathLike[str],
    *,
    connect: Sequence[str] = (),
) -> Joined:
    """Write the model that several files make together.

    Everything takes the joined model as any other, and `split` writes its quantized parts.

    Args:
        models: files of the parts, each called by its file's name without suffix: its nodes and tensors are
            `PART:NAME`.
        output: the ONNX file to write.
        connect: "PART:INPUT=PART:OUTPUT" for the output that an input reads, or "PART:INPUT=NAME" for an
            input of the whole. Any other input reads the output of the same name of another part, or is an
            input of the whole.

    Returns:
        Parts, inputs, connections and outputs of the whole.

    Raises:
        ModelError: a part cannot be read, parts do not go together, or onnxruntime refuses the whole.
        ConfigError: a part or connection does not exist, or the output cannot be written.
    """
    check_outputs([output], read := FilesRead(models := tuple(models)), model=output)
    if len(models) < 2:
        raise ConfigError(f"{output}: is joined of two parts or more; give the files of all of them")
    names = [Path(file).stem for file in models]
    for file, name in zip(models, names, strict=True):
        if problem := part_name_problem(name):
            raise ConfigError(f"{file}: a part is called by its file, and this name {problem}; rename it")
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ConfigError(f"part {twice[0]}: two files have this name, which names the part; rename one")
    parts = {name: load_model(file) for name, file in zip(names, models, strict=True)}
    joined, whole = _joined(parts, connect)
    external = any(has_external_data(model) for model in (whole, *parts.values()))
    with replacing_together(read.weights) as batch:
        file, name = save_model(whole, output, external, batch), f"{output} (not written)"
        open_session(os.fspath(file), name)
    return joined


# The parts as one model ------------------------------------------------------------------------------------


def _joined(parts: Mapping[str, ir.Model], connect: Sequence[str]) -> tuple[Joined, ir.Model]:
    for name, model in parts.items():
        try:
            _flat(model)
        except ModelError as problem:
            raise ModelError(f"part {name}: {problem}") from None
    _check_opsets(parts)
    inputs = {name: _by_name(model.graph.inputs) for name, model in parts.items()}
    outputs = {name: _by_name(model.graph.outputs) for name, model in parts.items()}
    sources = connections(inputs, outputs, connect)
    _check_types(parts, sources)
    # Labels belong to the first output, so that is one of the last part's, and one that no part reads.
    read = {joined_name(source) for source in sources.values() if source[0]}
    names = [joined_name((part, name)) for part in reversed(list(outputs)) for name in outputs[part]]
    ordered = tuple(sorted(names, key=read.__contains__))
    readers: dict[str, tuple[str, ...]] = {}
    connected: dict[str, str] = {}
    for end, (maker, name) in sources.items():
        here = joined_name(end)
        if maker:
            connected[here] = joined_name((maker, name))
        else:
            readers[name] = (*readers.get(name, ()), here)
    return Joined(tuple(parts), readers, connected, ordered), _whole(parts, sources, ordered)


def _by_name(values: Sequence[ir.Value]) -> dict[str, ir.Value]:
    return {str(value.name): value for value in values}


def _flat(model: ir.Model) -> None:
    """Name everything, inline the functions, and give each output its own node."""
    unlist_initializers(model)
    raise_ir_version(model)
    name_nodes(model)
    inline_functions(model)
    name_nodes(model)
    name_values(model)
    unshare_names(model)
    seen: set[ir.Value] = set()
    for index, value in enumerate(model.graph.outputs):
        if value.producer() is None or value in seen:
            copy = ir.Node("", "Identity", [value], name=f"Identity_{index}_{value.name}")
            result = copy.outputs[0]
            result.name, result.type, result.shape = f"{value.name}_{index}", value.type, value.shape
            model.graph.append(copy)
            model.graph.outputs[index] = result
        seen.add(value)


def _check_types(models: Mapping[str, ir.Model], sources: Sources) -> None:
    """Raise ModelError if types or shapes of connected tensors, or of readers of one input, do not fit."""
    first: dict[str, tuple[str, ir.Value]] = {}
    for (part, name), (maker, made) in sources.items():
        reader = next(value for value in models[part].graph.inputs if value.name == name)
        here = joined_name((part, name))
        if maker:
            value = next(v for v in models[maker].graph.outputs if v.name == made)
            _check_fit(here, reader, joined_name((maker, made)), value)
        else:
            _check_fit(here, reader, *first.setdefault(made, (here, reader)))


def _check_fit(reader: str, value: ir.Value, maker: str, made: ir.Value) -> None:
    if misfit(value, made):
        raise ModelError(
            f"{reader}: is {_described(value)}, and {maker}, which it is to read, is {_described(made)}; "
            "export the parts for each other, or connect another"
        )


def _described(value: ir.Value) -> str:
    is_tensor = isinstance(value.type, ir.TensorType) and value.dtype is not None
    shape = "x".join("?" if dim is None else str(dim) for dim in shape_of(value) or ())
    return f"{value.dtype.name.lower() if is_tensor and value.dtype else 'no tensor'} {shape}"


def _whole(models: Mapping[str, ir.Model], sources: Sources, outputs: Sequence[str]) -> ir.Model:
    """Return one model of the parts, which are emptied; symbols that several have get a prefix."""
    record = []
    for part, model in models.items():
        inputs = {str(v.name): v for v in model.graph.inputs}
        results = {str(v.name): v for v in model.graph.outputs}
        record.append(
            Part(
                part,
                {n: Port(joined_name(sources[part, n]), shape_of(v)) for n, v in inputs.items()},
                {n: Port(joined_name((part, n)), shape_of(v)) for n, v in results.items()},
                dict(model.metadata_props),
            )
        )
    symbols = Counter(
        symbol
        for model in models.values()
        for symbol in {
            dim
            for value in (*model.graph.inputs, *model.graph.outputs)
            for dim in shape_of(value) or ()
            if isinstance(dim, str)
        }
    )
    values: dict[str, ir.Value] = {}
    whole_inputs: dict[str, ir.Value] = {}
    for name, model in models.items():
        _set_prefix(model, name, {symbol for symbol, count in symbols.items() if count > 1})
        values |= {str(value.name): value for value in model.graph.outputs}
    for end, (maker, name) in sources.items():
        own = next(v for v in models[end[0]].graph.inputs if v.name == joined_name(end))
        target = values[joined_name((maker, name))] if maker else whole_inputs.setdefault(name, own)
        if target is not own:
            own.replace_all_uses_with(target)
    for name, value in whole_inputs.items():
        value.name = name
    opsets: dict[str, int] = {}
    nodes: list[ir.Node] = []
    constants: list[ir.Value] = []
    for model in models.values():
        graph = model.graph
        opsets |= graph.opset_imports
        nodes += (taken := list(graph))
        constants += graph.initializers.values()
        graph.inputs.clear()
        graph.outputs.clear()
        graph.initializers.clear()
        graph.remove(taken)
    graph = ir.Graph(
        list(whole_inputs.values()),
        [values[name] for name in outputs],
        nodes=nodes,
        initializers=constants,
        opset_imports=opsets,
        name="_".join(models),
    )
    graph.sort()
    whole = ir.Model(graph, ir_version=max(model.ir_version for model in models.values()))
    for entry in reversed(record):
        whole.metadata_props.update(entry.metadata)
    write_parts(whole, record)
    return whole


def _set_prefix(model: ir.Model, part: str, shared: set[str]) -> None:
    """Put the name of the part in front of all names, and of the symbols that another part has too."""
    for value in (*model.graph.inputs, *model.graph.outputs):
        if value.shape is not None:
            dims = [f"{part}{SEPARATOR}{dim}" if dim in shared else dim for dim in shape_of(value) or ()]
            value.shape = ir.Shape(dims)
    values: dict[ir.Value, None] = {}
    for graph in model.graphs():
        results = (value for node in graph for value in node.outputs)
        values |= dict.fromkeys((*graph.inputs, *graph.initializers.values(), *results))
    for value in values:
        if value.name:
            value.name = f"{part}{SEPARATOR}{value.name}"
    for node in model.graph.all_nodes():
        node.name = f"{part}{SEPARATOR}{node.name}"


def _check_opsets(models: Mapping[str, ir.Model]) -> None:
    """Raise ModelError if two parts are of other opsets of a domain."""
    found: dict[str, tuple[str, int]] = {}
    for name, model in models.items():
        for domain, version in model.opset_imports.items():
            first, other = found.setdefault(domain, (name, version))
            if version != other:
                own = f"{domain} {version}".strip()
                raise ModelError(
                    f"part {name}: is of opset {own}, and part {first} of {other}; export the "
                    "parts with one opset"
                )
