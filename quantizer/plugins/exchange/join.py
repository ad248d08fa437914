"""`join`: parts of a model, each in a separate file, and functions of other files, as one ONNX file.

The nodes and tensors of a part get its name in front: `encoder:/conv1/Conv`. Inputs that no part makes keep
their name. Every output of a part is an output of the whole, so that no step between merges nodes of two
parts, and the whole can be split again.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import onnx
import onnx_ir as ir
from google.protobuf.message import DecodeError

from ....profiles.base.errors import ConfigError, ModelError
from ....profiles.base.findings import Code, Finding
from ....profiles.base.output_files import replacing_together
from ...evaluation.runtimes import open_session
from ...model.loading import load_model
from ...model.opsets import in_opset
from ...model.output_paths import FilesRead, check_outputs
from ...model.saving import has_external_data, save_model
from ...prepare.cleanup import name_nodes, name_values, unshare_names
from ...prepare.inlining import inline_functions, raise_ir_version, signature, unlist_initializers
from ...prepare.opset import raise_opset
from .connections import Source, Sources, connections, misfit
from .parts import SEPARATOR, Part, Port, part_name_problem, shape_of, write_parts

Files = Sequence[str | os.PathLike[str]]

Library = Mapping[ir.OperatorIdentifier, tuple[onnx.FunctionProto, str]]
"""Functions, each with the file that it is from."""


@dataclass(frozen=True)
class Joined:
    """A model joined of several, and how its parts were connected."""

    parts: tuple[str, ...]
    inputs: Mapping[str, tuple[str, ...]]  # of the whole -> what reads them, as "PART:INPUT"
    connections: Mapping[str, str]  # "PART:INPUT" -> the output that it reads, as "PART:OUTPUT"
    outputs: tuple[str, ...]  # of the whole, in its order
    functions: tuple[str, ...] = ()  # that were put into the models, as "DOMAIN:NAME"
    findings: tuple[Finding, ...] = ()  # on its parts, which the subject of each names


def join(
    models: Files, output: str | os.PathLike[str], *, functions: Files = (), connect: Sequence[str] = ()
) -> Joined:
    """Write the model that several files make together, or one file with functions put in."""
    check_outputs([output], read := FilesRead(tuple(models), tuple(functions)))
    library = _read_functions(functions)
    names = [Path(file).stem for file in models] if len(models) > 1 else [""]
    for file, name in zip(models, names, strict=True):
        if name and (problem := part_name_problem(name)):
            raise ConfigError(f"{file}: a part is called by its file, and this name {problem}; rename it")
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ConfigError(f"part {twice[0]}: two files have this name, which names the part; rename one")
    parts = {name: load_model(file) for name, file in zip(names, models, strict=True)}
    findings: list[Finding] = []
    called: dict[ir.OperatorIdentifier, None] = {}
    for name, model in parts.items():
        called |= dict.fromkeys(_add_functions(model, library, name or str(models[0])))
    if len(models) > 1:
        joined, whole = _joined(parts, connect, findings)
    else:
        whole = parts[""]
        joined = Joined(
            (), {v.name or "": () for v in whole.graph.inputs}, {}, tuple(_by_name(whole.graph.outputs))
        )
        if connect:
            raise ConfigError(f"connect '{connect[0]}': there is one model only; give the parts")
    external = any(has_external_data(model) for model in (whole, *parts.values()))
    with replacing_together(read.weights) as batch:
        file, name = save_model(whole, output, external, batch), f"{output} (not written)"
        try:
            open_session(os.fspath(file), name)
        except ModelError:
            if missing := _missing_functions(whole):  # of which onnxruntime says something else
                raise ModelError(
                    f"{name}: calls {', '.join(missing)}, and has no such function; give the file that has "
                    "it with --functions FILE"
                ) from None
            raise
    return replace(joined, functions=tuple(map(_shown, called)), findings=tuple(findings))


# Functions that lie in files of their own: read, and put into the models that call them ---------------------


def _read_functions(files: Files) -> Library:
    """Return the functions in files of models or single FunctionProtos; files' graphs are ignored."""
    library: dict[ir.OperatorIdentifier, tuple[onnx.FunctionProto, str]] = {}
    for file in files:
        for function in _functions_of(file):
            identifier = (function.domain, function.name, function.overload)
            known = library.setdefault(identifier, (function, os.fspath(file)))
            if known[0] != function:
                raise ConfigError(
                    f"{file}: function {_shown(identifier)} is another in {known[1]}; give one of them"
                )
    return library


def _functions_of(file: str | os.PathLike[str]) -> Sequence[onnx.FunctionProto]:
    with open(file, "rb") as source:
        content = source.read()
    model, function = onnx.ModelProto(), onnx.FunctionProto()
    for message in (model, function):
        try:
            message.ParseFromString(content)
        except DecodeError:
            message.Clear()
    functions = list(model.functions) or ([function] if function.name and function.node else [])
    if not functions:
        raise ConfigError(
            f"{file}: has no functions; give an ONNX model with functions (ModelProto.functions), or a "
            "serialised FunctionProto"
        )
    return functions


def _shown(identifier: ir.OperatorIdentifier) -> str:
    """Return domain, name and overload of a function or operator for messages."""
    domain, name, overload = identifier
    return ":".join(part for part in (domain, name, overload) if part)


def _add_functions(model: ir.Model, library: Library, where: str) -> tuple[ir.OperatorIdentifier, ...]:
    """Add the functions that a model calls, directly or through others; return their identifiers."""
    added: list[ir.OperatorIdentifier] = []
    waiting: list[ir.Graph | ir.Function] = [model.graph, *model.functions.values()]
    while waiting:
        for node in ir.traversal.RecursiveGraphIterator(waiting.pop()):
            identifier = node.op_identifier()
            if identifier not in library or identifier in added:
                continue
            proto, file = library[identifier]
            if identifier in model.functions:
                if ir.to_proto(model.functions[identifier]) != proto:
                    raise ModelError(
                        f"{where}: has a function {_shown(identifier)}, and that of {file} is another; leave "
                        "out one of the two"
                    )
                continue
            function = ir.serde.deserialize_function(proto)
            model.functions[identifier] = function
            waiting.append(function)
            added.append(identifier)
            model.graph.opset_imports.setdefault(proto.domain, 1)
    if model.functions:
        copy = model.clone()
        name_nodes(copy)
        try:
            inline_functions(copy)
        except ModelError as problem:
            raise ModelError(f"{where}: {problem}") from None
    return tuple(added)


def _missing_functions(model: ir.Model) -> tuple[str, ...]:
    """Return the operators that are called, in a domain that functions of the model have, and are none."""
    domains = {domain for domain, _, _ in model.functions} - {""}
    blocks: list[ir.Graph | ir.Function] = [model.graph, *model.functions.values()]
    nodes = [node for block in blocks for node in ir.traversal.RecursiveGraphIterator(block)]
    called = dict.fromkeys(node.op_identifier() for node in nodes if node.domain in domains)
    return tuple(_shown(identifier) for identifier in called if identifier not in model.functions)


# The parts as one model ------------------------------------------------------------------------------------


def _of_part(name: str, finding: Finding) -> Finding:
    """Return a finding that names its part; without a name, as for a single model, it does not change."""
    return replace(finding, sentence=f"part {name}: {finding.sentence}", subject=name) if name else finding


def _joined(
    parts: Mapping[str, ir.Model], connect: Sequence[str], findings: list[Finding]
) -> tuple[Joined, ir.Model]:
    for model in parts.values():
        _flat(model)
    models = _in_one_opset(parts, findings)
    inputs = {name: _by_name(model.graph.inputs) for name, model in models.items()}
    outputs = {name: _by_name(model.graph.outputs) for name, model in models.items()}
    sources = connections(inputs, outputs, connect)
    _check_types(models, sources)
    # Labels belong to the first output, so that is one of the last part's, and one that no part reads.
    read = {source.joined_name for source in sources.values() if source.part}
    names = [Source(part, name).joined_name for part in reversed(list(outputs)) for name in outputs[part]]
    ordered = tuple(sorted(names, key=read.__contains__))
    readers: dict[str, tuple[str, ...]] = {}
    connected: dict[str, str] = {}
    for (part, name), source in sources.items():
        here = f"{part}{SEPARATOR}{name}"
        if source.part:
            connected[here] = source.joined_name
        else:
            readers[source.name] = (*readers.get(source.name, ()), here)
    return Joined(tuple(models), readers, connected, ordered), _whole(models, sources, ordered)


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
    for (part, name), source in sources.items():
        reader = next(value for value in models[part].graph.inputs if value.name == name)
        here = f"{part}{SEPARATOR}{name}"
        if source.part:
            maker = next(v for v in models[source.part].graph.outputs if v.name == source.name)
            _check_fit(here, reader, source.joined_name, maker)
        else:
            _check_fit(here, reader, *first.setdefault(source.name, (here, reader)))


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
                {n: Port(sources[part, n].joined_name, shape_of(v)) for n, v in inputs.items()},
                {n: Port(Source(part, n).joined_name, shape_of(v)) for n, v in results.items()},
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
    for (part, name), source in sources.items():
        own = next(v for v in models[part].graph.inputs if v.name == f"{part}{SEPARATOR}{name}")
        target = values[source.joined_name] if source.part else whole_inputs.setdefault(source.name, own)
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


# Parts of several opsets brought to one, where their operators mean the same in it -----------------------


def _in_one_opset(models: Mapping[str, ir.Model], findings: list[Finding]) -> dict[str, ir.Model]:
    """Return the models in one opset of each domain, with a finding for each raised one; may edit them."""
    findings += [_of_part(name, one) for name, model in models.items() for one in raise_opset(model)]
    for domain in sorted({d for model in models.values() for d in model.opset_imports} - {""}):
        newest = max(model.opset_imports.get(domain, 1) for model in models.values())
        for name, model in models.items():
            if (changed := _changed(model, domain, newest)) is not None:
                node = f"node '{changed.name}' ({changed.op_type}) of domain '{domain}'"
                what = f"{node} is another operator there"
                raise _refused(name, model.opset_imports[domain], newest, what)
            model.opset_imports[domain] = newest
    newest, raised = max(model.opset_imports.get("", 1) for model in models.values()), dict(models)
    for name, model in models.items():
        before = model.opset_imports.get("", newest)
        if before == newest:
            continue
        sentence = f"opset raised from {before} to {newest}, that of another part"
        raising = Finding(Code.OPSET_RAISED, sentence, figures={"from": before, "to": newest})
        findings.append(_of_part(name, raising))
        if _changed(model, "", newest) is None:
            model.opset_imports[""] = newest
            continue
        try:
            converted = in_opset(model, newest)
        except (RuntimeError, ValueError) as problem:
            raise _refused(name, before, newest, " ".join(str(problem).split())[:200]) from None
        names = {node.outputs[0].name: node.name for node in model.graph.all_nodes() if node.outputs}
        for new in converted.graph.all_nodes():  # the converter drops them
            new.name = new.name or (names.get(new.outputs[0].name) if new.outputs else None)
        converted.metadata_props.update(model.metadata_props)
        raised[name] = converted
    return raised


def _changed(model: ir.Model, domain: str, newest: int) -> ir.Node | None:
    """Return the first node that means something else, or does not exist, in another opset of its domain."""
    before = model.opset_imports.get(domain, newest)
    for node in ir.traversal.RecursiveGraphIterator(model.graph):
        if node.domain == domain and signature(node, before) != signature(node, newest):
            return node
    return None


def _refused(name: str, before: int, newest: int, what: str) -> ModelError:
    return ModelError(
        f"part {name}: is of opset {before} and cannot be raised to {newest}, that of another part: {what}; "
        "export the parts with one opset"
    )
