"""`join`: parts of a model, each in a file of its own, and functions of other files, as one ONNX file.

The nodes and tensors of a part get its name in front: `encoder:/conv1/Conv`. Inputs that no part makes keep
their name. Every output of a part is an output of the whole, so that no step between merges nodes of two
parts, and the whole can be split again.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import onnx_ir as ir

from ...profiles.base.errors import ConfigError, ModelError, nearest
from ...profiles.base.output_files import replacing_together
from ..evaluation.runtimes import open_session
from ..model.loading import read_model
from ..model.opsets import in_opset
from ..model.output_paths import FilesRead, check_outputs
from ..model.saving import has_external_data, save_model
from ..prepare.cleanup import name_nodes, name_values, unshare_names
from ..prepare.inlining import inline_functions, raise_ir_version, signature, unlist_initializers
from ..prepare.opset import raise_opset
from .part_functions import add_functions, missing_functions, read_functions, shown
from .parts import SEPARATOR, Part, Port, part_name_problem, shape_of, write_parts

Files = Sequence[str | os.PathLike[str]]


@dataclass(frozen=True)
class Joined:
    """What was joined.

    Attributes:
        parts: in the order in which they were given; none for a single model, which keeps its names.
        inputs: of the whole -> what reads them, as "PART:INPUT".
        connections: "PART:INPUT" -> the output that it reads, as "PART:OUTPUT".
        outputs: of the whole, in its order.
        functions: that were put into the models, as "DOMAIN:NAME".
        notes: sentences for the user.
    """

    parts: tuple[str, ...]
    inputs: Mapping[str, tuple[str, ...]]
    connections: Mapping[str, str]
    outputs: tuple[str, ...]
    functions: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def join(
    models: Files, output: str | os.PathLike[str], *, functions: Files = (), connect: Sequence[str] = ()
) -> Joined:
    """Write the model that several files make together, and that calls functions of others.

    Args:
        models: the parts; one, where only functions are put in. A part is called by its file without suffix.
        output: the ONNX file to write.
        functions: files with functions that the models call.
        connect: see `connections`; what is not said goes by names.

    Raises:
        ModelError: a part cannot be read, parts do not go together, or onnxruntime refuses the whole.
        ConfigError: a part or connection does not exist, or the output cannot be written.
    """
    check_outputs([output], read := FilesRead(tuple(models), tuple(functions)))
    library = read_functions(functions)
    names = [Path(file).stem for file in models] if len(models) > 1 else [""]
    for file, name in zip(models, names, strict=True):
        if name and (problem := part_name_problem(name)):
            raise ConfigError(f"{file}: a part is called by its file, and this name {problem}; rename it")
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ConfigError(f"part {twice[0]}: two files have this name, which names the part; rename one")
    read_in = {name: read_model(file) for name, file in zip(names, models, strict=True)}
    notes = [_said(name, note) for name, loaded in read_in.items() for note in loaded.notes]
    parts = {name: loaded.model for name, loaded in read_in.items()}
    added = {name: add_functions(model, library, name or str(models[0])) for name, model in parts.items()}
    called = dict.fromkeys(identifier for found in added.values() for identifier in found)
    if unused := [shown(identifier) for identifier in library if identifier not in called]:
        notes.append(f"functions that no node calls were left out: {', '.join(unused)}")
    if len(models) > 1:
        joined, whole = _joined(parts, connect, notes)
    else:
        whole = parts[""]
        joined = Joined((), {v.name or "": () for v in whole.graph.inputs}, {}, _names(whole.graph.outputs))
        if connect:
            raise ConfigError(f"connect '{connect[0]}': there is one model only; give the parts")
    external = any(has_external_data(model) for model in (whole, *parts.values()))
    with replacing_together(read.weights) as batch:
        _check_loads(whole, save_model(whole, output, external, batch), f"{output} (not written)")
    return replace(joined, functions=tuple(map(shown, called)), notes=tuple(notes))


def _check_loads(whole: ir.Model, file: Path, name: str) -> None:
    """Raise ModelError where onnxruntime refuses the model: of a missing function it says something else."""
    try:
        open_session(os.fspath(file), name)
    except ModelError:
        if missing := missing_functions(whole):
            raise ModelError(
                f"{name}: calls {', '.join(missing)}, and has no such function; give the file that has it "
                "with --functions FILE"
            ) from None
        raise


def _said(name: str, note: str) -> str:
    return f"part {name}: {note}" if name else note


def _names(values: Sequence[ir.Value]) -> tuple[str, ...]:
    return tuple(str(value.name) for value in values)


def _joined(
    parts: Mapping[str, ir.Model], connect: Sequence[str], notes: list[str]
) -> tuple[Joined, ir.Model]:
    for name, model in parts.items():
        notes += [_said(name, note) for note in _flat(model)]
    same_opset, raised = to_one_opset(parts)
    notes += raised
    models = dict(zip(parts, same_opset, strict=True))
    interfaces = [
        Interface(name, _names(model.graph.inputs), _names(model.graph.outputs))
        for name, model in models.items()
    ]
    sources = connections(interfaces, connect)
    record = _record(models, sources)
    # Labels belong to the first output, so that is one of the last part's, and one that no part reads.
    read = {source.joined_name for source in sources.values() if source.part}
    names = [Source(part.name, name).joined_name for part in reversed(interfaces) for name in part.outputs]
    outputs = sorted(names, key=read.__contains__)
    readers: dict[str, tuple[str, ...]] = {}
    connected: dict[str, str] = {}
    for (part, name), source in sources.items():
        here = f"{part}{SEPARATOR}{name}"
        if source.part:
            connected[here] = source.joined_name
        else:
            readers[source.name] = (*readers.get(source.name, ()), here)
    return Joined(tuple(models), readers, connected, tuple(outputs)), _whole(models, sources, record, outputs)


def _flat(model: ir.Model) -> tuple[str, ...]:
    """Name everything, put functions in their callers' place, and give every output a node of its own."""
    notes = [*unlist_initializers(model)]
    raise_ir_version(model)
    name_nodes(model)
    notes += inline_functions(model)
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
    return tuple(notes)


def _record(models: Mapping[str, ir.Model], sources: Sources) -> list[Part]:
    """Return the parts with what they are called in the whole; types and shapes of what is connected fit."""
    outputs = {name: {str(v.name): v for v in model.graph.outputs} for name, model in models.items()}
    first: dict[str, tuple[str, ir.Value]] = {}
    for (part, name), source in sources.items():
        reader = next(value for value in models[part].graph.inputs if value.name == name)
        here = f"{part}{SEPARATOR}{name}"
        if source.part:
            _check_fit(here, reader, source.joined_name, outputs[source.part][source.name])
        else:
            _check_fit(here, reader, *first.setdefault(source.name, (here, reader)))
    return [
        Part(
            part,
            {
                str(v.name): Port(sources[part, str(v.name)].joined_name, shape_of(v))
                for v in model.graph.inputs
            },
            {str(v.name): Port(f"{part}{SEPARATOR}{v.name}", shape_of(v)) for v in model.graph.outputs},
            dict(model.metadata_props),
        )
        for part, model in models.items()
    ]


def _check_fit(reader: str, value: ir.Value, maker: str, made: ir.Value) -> None:
    if value.type is not None and made.type is not None and value.type != made.type:
        raise ModelError(
            f"{reader}: is {_type(value)}, and {maker}, which it is to read, is {_type(made)}; export both "
            "parts with one type, or connect another"
        )
    if value.shape is None or made.shape is None:
        return
    pairs = zip(value.shape, made.shape, strict=False)
    differ = any(isinstance(a, int) and isinstance(b, int) and a != b for a, b in pairs)
    if differ or len(value.shape) != len(made.shape):
        raise ModelError(
            f"{reader}: has the shape {_shape(value)}, and {maker}, which it is to read, {_shape(made)}; "
            "export the parts for each other, or connect another"
        )


def _type(value: ir.Value) -> str:
    return (
        str(value.dtype.name.lower())
        if isinstance(value.type, ir.TensorType) and value.dtype
        else "no tensor"
    )


def _shape(value: ir.Value) -> str:
    return "x".join("?" if dim is None else str(dim) for dim in shape_of(value) or ())


def _whole(
    models: Mapping[str, ir.Model], sources: Sources, record: Sequence[Part], outputs: Sequence[str]
) -> ir.Model:
    """Return one model of the parts, which are taken apart.

    A symbol of a dimension may mean another size in another part: exporters number them anew in each file.
    """
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
    inputs: dict[str, ir.Value] = {}
    for name, model in models.items():
        _set_prefix(model, name, {symbol for symbol, count in symbols.items() if count > 1})
        values |= {str(value.name): value for value in model.graph.outputs}
    for (part, name), source in sources.items():
        own = next(v for v in models[part].graph.inputs if v.name == f"{part}{SEPARATOR}{name}")
        target = values[source.joined_name] if source.part else inputs.setdefault(source.name, own)
        if target is not own:
            own.replace_all_uses_with(target)
    for name, value in inputs.items():
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
        list(inputs.values()),
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


# Which output of which part each input reads: decided by names and by what the user says -----------------


@dataclass(frozen=True)
class Interface:
    """What a part reads and returns.

    Attributes:
        name: of the part.
        inputs, outputs: their names in the part's file.
    """

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class Source:
    """Where an input of a part comes from.

    Attributes:
        part: whose output it is; "" for an input of the joined model.
        name: of that output, or of that input of the joined model.
    """

    part: str
    name: str

    @property
    def joined_name(self) -> str:
        """The name in the joined model."""
        return f"{self.part}{SEPARATOR}{self.name}" if self.part else self.name


Sources = Mapping[tuple[str, str], Source]
"""By part and input."""


def connections(parts: Sequence[Interface], wanted: Sequence[str]) -> Sources:
    """Return where every input of every part comes from.

    An input that nobody speaks of reads the output of the same name of another part, where one has it, or
    else is an input of the joined model, of the same name.

    Args:
        parts: in the order in which they were given.
        wanted: "PART:INPUT=PART:OUTPUT", or "PART:INPUT=NAME" with NAME an input of the joined model.

    Raises:
        ConfigError: something in `wanted` does not exist, an input could read several outputs, a part has
            nothing to do with the others, or parts read outputs of each other.
    """
    by_name = {part.name: part for part in parts}
    said = dict(_parsed(text, by_name) for text in wanted)
    found = {
        (part.name, name): said.get((part.name, name)) or _by_name(part, name, parts)
        for part in parts
        for name in part.inputs
    }
    _check_connected(parts, found)
    _check_order(parts, found)
    return found


def _parsed(text: str, parts: Mapping[str, Interface]) -> tuple[tuple[str, str], Source]:
    left, _, right = text.partition("=")
    part, _, name = left.partition(SEPARATOR)
    if not right or not name:
        raise ConfigError(
            f"connect '{text}': not of the form PART:INPUT=PART:OUTPUT, nor PART:INPUT=NAME for an input of "
            "the joined model; write it like decoder:h=encoder:last_hidden_state"
        )
    _check_name(text, "part", part, parts)
    _check_name(text, f"input of {part}", name, parts[part].inputs)
    source, separator, output = right.partition(SEPARATOR)
    if not separator or source not in parts:
        return (part, name), Source("", right)
    _check_name(text, f"output of {source}", output, parts[source].outputs)
    return (part, name), Source(source, output)


def _check_name(text: str, what: str, name: str, names: Mapping[str, object] | Sequence[str]) -> None:
    if name not in names:
        raise ConfigError(
            f"connect '{text}': there is no {what} '{name}'; use one of {', '.join(names)}."
            f"{nearest(name, names)}"
        )


def _by_name(reader: Interface, name: str, parts: Sequence[Interface]) -> Source:
    makers = [part.name for part in parts if part is not reader and name in part.outputs]
    if len(makers) > 1:
        raise ConfigError(
            f"part {reader.name}: its input '{name}' is an output of {' and of '.join(makers)}; say which "
            f"with --connect {reader.name}:{name}={makers[0]}:{name}"
        )
    return Source(makers[0] if makers else "", name)


def _check_connected(parts: Sequence[Interface], sources: Sources) -> None:
    pairs = {(source.part, reader) for (reader, _), source in sources.items() if source.part}
    touched = {part for pair in pairs for part in pair}
    for part in reversed(parts) if len(parts) > 1 else ():
        if part.name not in touched:
            others = [f"{o.name}{SEPARATOR}{name}" for o in parts if o is not part for name in o.outputs]
            raise ConfigError(
                f"part {part.name}: reads no output of another part, and none reads its outputs; its inputs "
                f"are {', '.join(part.inputs)}, the outputs of the others {', '.join(others)}: connect them "
                f"with --connect {part.name}:{part.inputs[0] if part.inputs else 'INPUT'}={others[0]}, or "
                "quantize it by itself"
            )


def _check_order(parts: Sequence[Interface], sources: Sources) -> None:
    """Check that the parts can run one after the other."""
    order: TopologicalSorter[str] = TopologicalSorter()
    for (reader, _), source in sources.items():
        if source.part:
            order.add(reader, source.part)
    try:
        order.prepare()
    except CycleError as problem:
        loop, place = set(problem.args[1]), {part.name: index for index, part in enumerate(parts)}
        reader = next(
            f"{part}{SEPARATOR}{name}"
            for (part, name), source in sources.items()
            if {part, source.part} <= loop and place[part] < place[source.part]
        )
        names = " and ".join(sorted(loop, key=place.__getitem__))
        raise ConfigError(
            f"parts {names}: each reads an output of the other, so none can run first; make an input one of "
            f"the whole: --connect {reader}=NAME, or leave out a part"
        ) from None


# Parts of several opsets brought to one, where their operators mean the same in it -----------------------


def to_one_opset(models: Mapping[str, ir.Model]) -> tuple[Sequence[ir.Model], tuple[str, ...]]:
    """Return the models in one opset of each domain, and notes about what was raised.

    Args:
        models: by the names of the parts; they may be changed.

    Raises:
        ModelError: a part has an operator that is another in the opset of the others.
    """
    notes = [f"part {name}: {note}" for name, model in models.items() for note in raise_opset(model)]
    for domain in sorted({d for model in models.values() for d in model.opset_imports} - {""}):
        newest = max(model.opset_imports.get(domain, 1) for model in models.values())
        for name, model in models.items():
            if (changed := _changed(model, domain, newest)) is not None:
                node = f"node '{changed.name}' ({changed.op_type}) of domain '{domain}'"
                what = f"{node} is another operator there"
                raise _refused(name, model.opset_imports[domain], newest, what)
            model.opset_imports[domain] = newest
    newest = max(model.opset_imports.get("", 1) for model in models.values())
    raised = [_in_opset(model, newest, name, notes) for name, model in models.items()]
    return raised, tuple(notes)


def _in_opset(model: ir.Model, newest: int, name: str, notes: list[str]) -> ir.Model:
    before = model.opset_imports.get("", newest)
    if before == newest:
        return model
    notes.append(f"part {name}: opset raised from {before} to {newest}, that of another part")
    if _changed(model, "", newest) is None:
        model.opset_imports[""] = newest
        return model
    try:
        converted = in_opset(model, newest)
    except (RuntimeError, ValueError) as problem:
        raise _refused(name, before, newest, " ".join(str(problem).split())[:200]) from None
    names = {node.outputs[0].name: node.name for node in model.graph.all_nodes() if node.outputs}
    for node in converted.graph.all_nodes():  # the converter drops them
        node.name = node.name or (names.get(node.outputs[0].name) if node.outputs else None)
    converted.metadata_props.update(model.metadata_props)
    return converted


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
