"""Functions that lie in files of their own: read, and put into the models that call them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import onnx
import onnx_ir as ir
from google.protobuf.message import DecodeError

from ...profiles.base.errors import ConfigError, ModelError
from ..prepare.cleanup import name_nodes
from ..prepare.inlining import inline_functions

PathLike = str | os.PathLike[str]

Library = Mapping[ir.OperatorIdentifier, tuple[onnx.FunctionProto, str]]
"""Functions, each with the file that it is from."""


def read_functions(files: Sequence[PathLike]) -> Library:
    """Return the functions of files: of models, whose graphs do not matter, or single FunctionProto messages.

    Raises:
        ConfigError: a file has no functions, or two have different ones of one name.
    """
    found: dict[ir.OperatorIdentifier, tuple[onnx.FunctionProto, str]] = {}
    for file in files:
        for function in _functions_of(file):
            identifier = (function.domain, function.name, function.overload)
            known = found.setdefault(identifier, (function, os.fspath(file)))
            if known[0] != function:
                raise ConfigError(
                    f"{file}: function {shown(identifier)} is another in {known[1]}; give one of them"
                )
    return found


def _functions_of(file: PathLike) -> Sequence[onnx.FunctionProto]:
    with open(file, "rb") as source:
        content = source.read()
    model, function = onnx.ModelProto(), onnx.FunctionProto()
    for message in (model, function):
        try:
            message.ParseFromString(content)
        except DecodeError:
            message.Clear()
    found = list(model.functions) or ([function] if function.name and function.node else [])
    if not found:
        raise ConfigError(
            f"{file}: has no functions; give an ONNX model with functions (ModelProto.functions), or a "
            "serialised FunctionProto"
        )
    return found


def shown(identifier: ir.OperatorIdentifier) -> str:
    """Return domain, name and overload of a function or operator for messages."""
    domain, name, overload = identifier
    return ":".join(part for part in (domain, name, overload) if part)


def add_functions(model: ir.Model, library: Library, where: str) -> tuple[ir.OperatorIdentifier, ...]:
    """Put the functions that a model calls, and those that they call, into it; return which.

    Raises:
        ModelError: the model has another function of that name, or they cannot be inlined: one calls itself,
            or its operators are others in the opset of the model.
    """
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
                        f"{where}: has a function {shown(identifier)}, and that of {file} is another; leave "
                        "out one of the two"
                    )
                continue
            function = ir.serde.deserialize_function(proto)
            model.functions[identifier] = function
            waiting.append(function)
            added.append(identifier)
            model.graph.opset_imports.setdefault(proto.domain, 1)
    _check_inlining(model, where)
    return tuple(added)


def missing_functions(model: ir.Model) -> tuple[str, ...]:
    """Return the operators that are called, in a domain that functions of the model have, and are none."""
    domains = {domain for domain, _, _ in model.functions} - {""}
    blocks: list[ir.Graph | ir.Function] = [model.graph, *model.functions.values()]
    nodes = [node for block in blocks for node in ir.traversal.RecursiveGraphIterator(block)]
    called = dict.fromkeys(node.op_identifier() for node in nodes if node.domain in domains)
    return tuple(shown(identifier) for identifier in called if identifier not in model.functions)


def _check_inlining(model: ir.Model, where: str) -> None:
    if model.functions:
        copy = model.clone()
        name_nodes(copy)
        try:
            inline_functions(copy)
        except ModelError as problem:
            raise ModelError(f"{where}: {problem}") from None
