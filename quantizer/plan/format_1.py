"""Plan files of format 1, the first that was used: their words put into those of format 2."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_KINDS = {"integer": "quantized", "table": "lookup-table", "move": "pass-through"}
_IMPLEMENTATIONS = {"codes": "integer", "leaky": "leaky-relu"}
_SETTINGS = {
    "wide": "keep_16bit",
    "propagation": "inter_layer",
    "block": "block_size",
    "tables": "lookup_tables",
    "resolution": "scale_sharing",
}
_GROUP = {"winners": "range_set_by", "ties": "tied_by"}
_ADJUSTMENTS = {"factors": "equalization"}
_ADJUSTMENT = {"exponents": "log2_scales", "moves": "offsets"}
_WORDS: Mapping[str, Mapping[str, str]] = {
    "inter_layer": {"stay": "quantized", "return": "float"},
    "granularity": {"channel": "per-channel", "tensor": "per-tensor"},
    "scale_sharing": {"global": "unified", "local": "separate"},
    "rounding": {"sums": "squant"},
}


def from_format_1(top: Mapping[str, object]) -> dict[str, object]:
    """Return the top mapping of a plan of format 1 with the keys and words of format 2.

    What is malformed stays as it is: the reader of format 2 says what is wrong with it.
    """
    changed = dict(top)
    if isinstance(config := top.get("config"), dict):
        renamed = {_SETTINGS.get(str(key), str(key)): value for key, value in config.items()}
        changed["config"] = {key: _word(_WORDS.get(key, {}), value) for key, value in renamed.items()}
    if isinstance(tensors := top.get("tensors"), dict):
        changed["tensors"] = {name: _params(value) for name, value in tensors.items()}
    if isinstance(nodes := top.get("nodes"), dict):
        changed["nodes"] = {name: _node(value) for name, value in nodes.items()}
    if "groups" in top:
        groups = changed.pop("groups")
        changed["shared_scales"] = (
            [_renamed(_GROUP, g) for g in groups] if isinstance(groups, list) else groups
        )
    if isinstance(adjustments := top.get("adjustments"), dict):
        changed["adjustments"] = _adjustments(adjustments)
    return changed


def _adjustments(value: Mapping[Any, Any]) -> Any:
    """Return the sections of the adjustments with the keys of their entries."""
    return {
        _ADJUSTMENTS.get(section, section): {
            name: _renamed(_ADJUSTMENT, entry) for name, entry in found.items()
        }
        if isinstance(found, dict)
        else found
        for section, found in value.items()
    }


def _renamed(keys: Mapping[str, str], value: Any) -> Any:
    return {keys.get(key, key): item for key, item in value.items()} if isinstance(value, dict) else value


def _word(words: Mapping[str, str], value: Any) -> Any:
    return words.get(value, value) if isinstance(value, str) else value


def _params(value: Any) -> Any:
    return _renamed({"block": "block_size"}, value)


def _node(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    node = _renamed({"spelling": "implementation"}, value)
    if "kind" in node:
        node["kind"] = _word(_KINDS, node["kind"])
    if "implementation" in node:
        node["implementation"] = _word(_IMPLEMENTATIONS, node["implementation"])
    if isinstance(inputs := node.get("inputs"), dict):
        node["inputs"] = {key: _params(item) for key, item in inputs.items()}
    return node
