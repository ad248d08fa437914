"""The command line, run inside this process."""

from __future__ import annotations

from click.testing import CliRunner, Result
from qprof_onnx.cli.main import main


def qprof(*words: object, **environment: str) -> Result:
    """Return what a command printed and its exit code."""
    return CliRunner().invoke(main, [str(word) for word in words], prog_name="qprof", env=environment)


def printed(*words: object) -> str:
    """Return the standard output of a command that must succeed."""
    result = qprof(*words)
    assert result.exit_code == 0, result.output
    return result.stdout
