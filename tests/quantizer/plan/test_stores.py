"""One law for both files, profile and plan: nothing of them is lost, guessed or passed over."""

from __future__ import annotations

import copy
import functools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from qprof_onnx.profiles.base import strict_yaml
from qprof_onnx.profiles.base.errors import PlanError, ProfileError, QprofError
from qprof_onnx.profiles.records import store as profiles
from qprof_onnx.quantizer.plan import store as plans

parsed = functools.cache(yaml.safe_load)
DATA = Path(__file__).parents[2] / "data"


@dataclass(frozen=True)
class Store:
    """A file of the format, its functions, and the error that refuses it."""

    text: str
    loads: Callable[[str], Any]
    dumps: Callable[[Any], str]
    load: Callable[[Path], Any]
    save: Callable[[Any, Path], None]
    refusal: type[QprofError]


def of(name: str) -> str:
    return (DATA / name).read_text(encoding="utf-8")


PROFILE = Store(
    of("profile-small.yaml"),
    *(profiles.loads, profiles.dumps, profiles.load_profile, profiles.save_profile),
    ProfileError,
)
PLAN = Store(of("plan-adjusted.yaml"), plans.loads, plans.dumps, plans.load_plan, plans.save_plan, PlanError)
STORES = {"profile": PROFILE, "plan": PLAN}
both = pytest.mark.parametrize("store", STORES.values(), ids=STORES)


@both
def test_a_file_can_be_written_and_read(store: Store, tmp_path: Path) -> None:
    value = store.loads(store.text)
    store.save(value, tmp_path / "p.yaml")
    assert (tmp_path / "p.yaml").read_text(encoding="utf-8") == store.dumps(value)
    assert store.load(tmp_path / "p.yaml") == value


@both
def test_any_yaml_reader_can_read_the_file(store: Store) -> None:
    document = parsed(store.text)
    assert document["format"] == store.text.partition("\n")[0].removeprefix("format: ")
    assert list(document["tensors"]) == list(store.loads(store.text).tensors)


@both
def test_reading_without_libyaml_gives_the_same(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    value = store.loads(store.text)
    monkeypatch.setattr(strict_yaml, "_loader", lambda: yaml.SafeLoader)
    assert store.loads(store.text) == value


@both
def test_a_missing_file_is_named(store: Store, tmp_path: Path) -> None:
    with pytest.raises(store.refusal, match=r"none\.yaml: cannot be read: No such file"):
        store.load(tmp_path / "none.yaml")


@given(st.sampled_from(list(STORES.values())), st.data())
def test_a_file_cut_off_anywhere_is_refused(store: Store, data: st.DataObject) -> None:
    with pytest.raises(store.refusal):
        store.loads(store.text[: data.draw(st.integers(0, len(store.text) - 2))])


# Edited files


Steps = tuple[str | int, ...]


def written(document: object) -> str:
    return yaml.safe_dump(document, sort_keys=False, width=1 << 20) + "...\n"


def places(value: object, path: Steps = ()) -> Iterator[Steps]:
    """Yield the path of each value of a document."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (*path, key)
        yield from places(item, (*path, key))


def changed(store: Store, path: Steps, change: Callable[[Any, Any], None]) -> str:
    """Return a file of which a mapping or list was changed at a key."""
    document = copy.deepcopy(parsed(store.text))
    inside = document
    for step in path[:-1]:
        inside = inside[step]
    change(inside, path[-1])
    return written(document)


def another_type(inside: Any, key: Any) -> None:
    inside[key] = 3 if isinstance(inside[key], dict) else {"odd": 1}


@both
def test_another_way_of_writing_the_same_is_read_alike(store: Store) -> None:
    assert store.loads(written(parsed(store.text))) == store.loads(store.text)


@both
def test_a_value_of_another_type_is_refused_with_its_place(store: Store) -> None:
    for path in places(parsed(store.text)):
        named = next(str(step) for step in reversed(path) if isinstance(step, str))
        with pytest.raises(store.refusal, match=re.escape(named)) as caught:
            store.loads(changed(store, path, another_type))
        assert re.match(r"(?s).*; .+", str(caught.value)), f"{path}: what, and what to do"


TENSOR = "dtype shape minimum maximum count zeros nan inf"
REQUIRED: dict[str, dict[Steps, str]] = {
    "profile": {
        (): "format model data tensors",
        ("model",): "structure weights opset",
        ("data",): "",
        ("tensors", "input"): TENSOR,
        ("tensors", "input", "histogram"): "first counts",
    },
    "plan": {
        (): "format model config tensors nodes",
        ("model",): "structure weights opset",
        ("config",): "",
        ("tensors", "c"): "type scale zero_point",
        ("nodes", "conv_c"): "kind",
        ("shared_scales", 0): "range range_set_by tied_by members",
    },
}
"""Mappings whose keys the format knows, and the keys without a default."""
RECORDS = [(STORES[name], record, keys) for name, found in REQUIRED.items() for record, keys in found.items()]


@pytest.mark.parametrize(("store", "record", "keys"), RECORDS)
def test_an_unknown_key_and_a_missing_one_are_named(store: Store, record: Steps, keys: str) -> None:
    with pytest.raises(store.refusal, match="unknown key 'oddd'"):
        store.loads(changed(store, (*record, "oddd"), lambda inside, key: inside.update({key: 1})))
    for key in keys.split():
        with pytest.raises(store.refusal, match=f"key '{key}' is missing"):
            store.loads(changed(store, (*record, key), lambda inside, key: inside.pop(key)))


HEADS = {
    "not YAML": ("\nmodel:", "\nmodel: ]", "line [34]: not YAML: "),
    "empty": (r"(?s).*", "", "contains 0 YAML documents instead of one"),
    "two documents": (r"\Z", "---\na: 1\n...\n", "contains 2 YAML documents"),
    "not a mapping": (r"(?s).*", "- a\n...\n", "the document must be a mapping with the key 'format'"),
    "no format": ("format: .*\n", "", "key 'format' is missing; give a"),
    "another format": (
        "format: .*",
        "format: gguf/3",
        "unknown format 'gguf/3': this qprof only reads 'qprof-.*give",
    ),
    "another number": (
        "/1",
        "/6",
        "unknown format 'qprof-.*/6': this qprof only reads 'qprof-.*/1'; write it",
    ),
    "cut off": (r"\n\.\.\.\n\Z", "\n", "the file is cut off"),
}


@both
@pytest.mark.parametrize("way", HEADS)
def test_what_is_no_file_of_the_format_is_refused_in_one_sentence(
    store: Store, way: str, tmp_path: Path
) -> None:
    pattern, replacement, sentence = HEADS[way]
    (tmp_path / "broken.yaml").write_text(re.sub(pattern, replacement, store.text, count=1))
    with pytest.raises(store.refusal, match=sentence) as caught:
        store.load(tmp_path / "broken.yaml")
    assert re.match(r"broken\.yaml: .*; .+", str(caught.value)), "file, what, and what to do"


@pytest.mark.parametrize(("store", "other"), [(PROFILE, PLAN), (PLAN, PROFILE)], ids=STORES)
def test_the_other_file_is_refused_by_its_format(store: Store, other: Store) -> None:
    with pytest.raises(store.refusal, match=r"is a (plan, not a profile|profile, not a plan); give a"):
        store.loads(other.text)
