"""Every message reads "where: what; what to do", and every file of a user goes through a strict reader."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from qprof_onnx.profiles.base.errors import ConfigError, QprofError, shown

ROOT = Path(__file__).parent.parent
SOURCES = sorted(path for top in ("profiles", "quantizer", "cli") for path in (ROOT / top).rglob("*.py"))
ERRORS = {"ConfigError", "DataError", "ModelError", "PlanError", "ProfileError", "QprofError", "WritingError"}
DELEGATED = {
    "problem.message": "a MalformedError, to which the reader adds the file, and advice where it has none",
    "{where}: {problem}": "a whole message, to which a file is added",
    "{problem}; {problem.advice}": "a MalformedError that has its own advice",
    "quantization parameters: {problem}": "the sentences of `affine`, which end with advice",
    "{sentence}; leave one out": "the sentences of `merge_profiles`, which begin with a file",
    "{path}: {error}": "a whole message of preparation, to which the file is added",
    "prepared.untyped": "the sentence of `refusals.load_refusal`, as `PreparedModel.untyped` keeps it",
    "load_refusal(": "the sentences of `refusals.load_refusal`, which end with advice",
    "{problem} in the first pass": "`problem` begins with the sample",
    ", and {ONCE}": "the constant ends with advice",
    "{_install_advice(": "sentences of `_install_advice`, which end with the command that installs",
    "({self.node.op_type}): {what}": "an error of `Task.error`, whose calls are looked at here too",
}
"""Messages whose parts are made elsewhere, by what they have in them, and why they are whole all the same."""
NAMED = {"error"}
"""Methods that make an error from a sentence to which they add where: `Task.error`."""

YAML = {"profiles/base/strict_yaml.py"}
JSON = {
    "profiles/base/json_values.py": "the strict reader",
    "profiles/records/non_finite.py": "what workers send",
    "quantizer/plan/provenance.py": "estimates in the metadata of a model; what is no JSON is none",
    "profiles/samples/tables.py": "rows of data, members of a shard, columns of a saved data set",
    "profiles/samples/states.py": "config.json beside a model, of which two numbers are taken",
    "quantizer/model/folders.py": "genai_config.json of a folder, of which one name is taken",
    "profiles/runner/checkpoint.py": "the first line of a checkpoint",
    "quantizer/search/state.py": "the state of a tuning",
    "quantizer/adjustments/checkpoint.py": "the first line of a checkpoint",
    "profiles/runner/cluster.py": "what workers send",
    "quantizer/evaluation/node_times.py": "what onnxruntime's profiler has just written",
}


@cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    """Return the nodes of a source that the tests look at."""
    kinds = (ast.Call, ast.Assign, ast.Attribute, ast.Import, ast.ImportFrom)
    tree = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return tuple(node for node in tree if isinstance(node, kinds))


def messages(path: Path) -> Iterator[tuple[int, str, bool]]:
    """Yield the messages that a source makes: line, text with {expressions}, whether it has to say where."""
    for node in nodes_of(path):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        if isinstance(node.func, ast.Name) and node.func.id in ERRORS:
            yield node.lineno, text_of(node.args[0]), True
        elif (
            isinstance(node.func, ast.Attribute)
            and node.func.attr in NAMED
            and "task" in ast.unparse(node.func)
        ):
            yield node.lineno, text_of(node.args[0]), False


def text_of(node: ast.expr) -> str:
    """Return a string as it is written, with what is filled in between braces."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        parts = node.values
        return "".join(
            str(part.value) if isinstance(part, ast.Constant) else "{" + ast.unparse(part.value) + "}"  # type: ignore[attr-defined]
            for part in parts
        )
    return text_of(node.left) + text_of(node.right) if isinstance(node, ast.BinOp) else ast.unparse(node)


def is_whole(text: str, has_where: bool) -> bool:
    """Whether a message says where, what, and what to do."""
    head, semicolon, advice = text.partition("; ")
    return bool(semicolon and advice.strip()) and (not has_where or ": " in head)


def test_the_reader_of_messages_sees_what_is_missing() -> None:
    assert is_whole("{path}: is a folder; name a file", True)
    assert not is_whole("{path}: is a folder", True)
    assert not is_whole("it is a folder; name a file", True)
    assert text_of(ast.parse('f"{path}: {a + b}" "; x"', mode="eval").body) == "{path}: {a + b}; x"


def test_a_message_says_where_what_and_what_to_do() -> None:
    assert not [wrong for path in SOURCES for wrong in incomplete(path)]


def incomplete(path: Path) -> list[str]:
    """Return the messages of a source in which a part is missing."""
    constants = {
        node.targets[0].id: text_of(node.value)
        for node in nodes_of(path)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    return [
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for line, text, has_where in messages(path)
        if not is_whole(constants.get(text, text), has_where) and not any(part in text for part in DELEGATED)
    ]


def test_a_message_that_is_made_elsewhere_is_still_there() -> None:
    texts = [text for path in SOURCES for _, text, _ in messages(path)]
    assert not [part for part in DELEGATED if not any(part in text for text in texts)]


@pytest.mark.parametrize("name", ["\x1b[31mred", "a\nb", "\x07", "\x85", "\u202egnp", "\udcff"])
def test_a_message_shows_control_characters_escaped(name: str) -> None:
    message = str(ConfigError(f"{name}: no such file; check the path"))
    assert message.isprintable()
    assert message.endswith(": no such file; check the path")


def test_a_long_message_keeps_its_beginning_and_its_end() -> None:
    message = shown(f"file.yaml: key '{'x' * 100_000}' is unknown; correct it")
    assert len(message) <= 1000
    assert message.startswith("file.yaml: key 'xxx")
    assert message.endswith("x' is unknown; correct it")


def test_a_message_of_usual_words_stays_as_it_is() -> None:
    text = "ä/模型.onnx: is no model; export it again"
    assert str(QprofError(text)) == text


def test_yaml_is_read_in_one_place() -> None:
    users = {path.relative_to(ROOT).as_posix() for path in SOURCES if "yaml" in top_imports(path)}
    assert users == YAML


def test_json_is_read_where_it_is_known_to_be() -> None:
    users = {
        path.relative_to(ROOT).as_posix()
        for path in SOURCES
        for node in nodes_of(path)
        if isinstance(node, ast.Attribute)
        and node.attr in ("load", "loads", "JSONDecoder")
        and ast.unparse(node) in ("json.load", "json.loads", "json.JSONDecoder")
    }
    assert users <= JSON.keys()


def test_nothing_that_runs_code_when_it_reads_is_imported() -> None:
    unsafe = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib"}
    assert not [path for path in SOURCES if unsafe & top_imports(path)]


def test_nothing_is_evaluated_and_no_pickle_is_allowed() -> None:
    calls = [(path, node) for path in SOURCES for node in nodes_of(path) if isinstance(node, ast.Call)]
    named = [node.func.id for _, node in calls if isinstance(node.func, ast.Name)]
    assert not {"eval", "exec", "compile", "__import__"} & set(named)
    methods = [(path, node) for path, node in calls if isinstance(node.func, ast.Attribute)]
    reading = [
        ast.unparse(node)
        for _, node in methods
        if node.func.attr in ("load", "read_array")  # type: ignore[attr-defined]
    ]
    assert all("allow_pickle=False" in text for text in reading if text.startswith("np."))


def top_imports(path: Path) -> set[str]:
    """Return the packages that a source imports from elsewhere."""
    found = set()
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            found.add(node.module.partition(".")[0])
    return found


def test_the_errors_are_all_looked_at() -> None:
    module = importlib.import_module("qprof_onnx.profiles.base.errors")
    classes = {
        name for name, kind in vars(module).items() if isinstance(kind, type) and issubclass(kind, QprofError)
    }
    assert classes == ERRORS
