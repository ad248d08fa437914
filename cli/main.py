"""The `qprof` command: finds the commands, and turns errors into one line and an exit code."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from keyword import iskeyword
from typing import Any

import click

from ..profiles.base.errors import QprofError, causes, is_out_of_memory, nearest, shown
from ..profiles.base.extras import OptionalModule, missing_plugin
from .console import StdoutError, abandon, check_streams, printing_notes, tell, tell_unprinted_notes
from .interruptions import EndedError, Interruptions

# Heading -> name -> short help, in the order of `qprof --help`. The command is `command` in the module of the
# same name with underscores; it is imported when it is called, so `qprof --help` stays fast. A test compares
# the texts with the commands' own.
COMMAND_GROUPS = {
    "Everyday": {
        "quantize": "Quantize a model, from samples or from its profile.",
        "evaluate": "Compare a quantized model with its float model.",
        "report": "Write a page about a quantized model, layer by layer.",
    },
    "Profile once": {
        "dump-profile": "Run a model on samples and record the values of its tensors.",
        "merge": "Merge profiles of parts of the data into one profile.",
        "diff": "Compare two profiles of a model, the largest drift first.",
        "show": "Print a profile or a plan, or explain a tensor or node of one.",
    },
    "Look closer": {
        "compare-layers": "List the SQNR of each tensor.",
        "tune": "Find and verify the best plan that meets a target.",
    },
    "Publish": {"verify": "Compare a card with a quantized model, or with a newer card."},
    "Other tools, models of several files": {
        "import": "Read another tool's file as a profile or a plan.",
        "export": "Write a profile or a plan for another tool.",
        "join": "Join the parts of a model into one model.",
    },
    "Reference": {
        "targets": "List the runtimes that qprof can quantize for.",
        "schema": "Print the JSON Schema of a file or of a result.",
        "instrument": "Write a model that records its own activations.",
    },
}
COMMANDS = {name: text for group in COMMAND_GROUPS.values() for name, text in group.items()}

PLUGIN_COMMANDS = {
    "tune": "tune",
    "report": "report",
    "verify": "card",
    "import": "exchange",
    "export": "exchange",
    "join": "exchange",
    "diff": "drift",
    "instrument": "instrument",
    "show": "explanation",
    "compare-layers": "layers",
}
"""Command -> its plug-in, a folder of `quantizer/plugins/`: without it the command is not there."""


def module_of(command: str) -> OptionalModule:
    """Return the module of a command."""
    plugin = PLUGIN_COMMANDS.get(command)
    place = "cli" if plugin is None else f"quantizer.plugins.{plugin}"
    module = f"{command}_" if iskeyword(command) else command.replace("-", "_")
    return OptionalModule(f"command '{command}'", f"{place}.commands.{module}")


SIGPIPE_EXIT_CODE = 141
"""Exit code, as if SIGPIPE had ended the process."""

EPILOG = """\b
Exit codes:
  0    done
  1    done, but a gate failed or is not proven (such as --min-sqnr of qprof evaluate)
  2    wrong usage or unusable input; the message names the remedy
  70   an error of qprof itself; please report it
  130  interrupted with Ctrl-C; no half-written file is left
  141  the reader of the output went away
  143  ended by SIGTERM, 129 by SIGHUP; like Ctrl-C

\b
Example:
  qprof quantize model.onnx --data samples/ -o model.int8.onnx --report report/
  qprof evaluate model.onnx model.int8.onnx --data heldout/ --labels labels.txt
"""


def tell_interruption(error: BaseException | None) -> int:
    """Print on stderr that the command was interrupted, and return the exit code."""
    if isinstance(error, EndedError):
        tell(f"ended by {signal.Signals(error.number).name}")
        return 128 + error.number
    tell("interrupted")
    return 130


class Commands(click.Group):
    """A group that imports a command when it is called and handles every error in one place."""

    interruptions = Interruptions()

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands in the order of use."""
        return [name for name in COMMANDS if module_of(name).is_installed]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command by its name, or None; ConfigError if it is known, and not installed."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = module_of(cmd_name).load().command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that is called; an unknown name is an error that suggests the nearest."""
        if args[0] not in COMMANDS and not args[0].startswith("-"):
            ctx.fail(f"No such command '{args[0]}'.{nearest(args[0], COMMANDS)}")
        return super().resolve_command(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands under their headings, without importing one, and the options of the group."""
        there = self.list_commands(ctx)
        width = max(map(len, there))
        for heading, commands in COMMAND_GROUPS.items():
            rows = [(name.ljust(width), text) for name, text in commands.items() if name in there]
            if rows:
                with formatter.section(heading):
                    formatter.write_dl(rows)
        click.Command.format_options(self, ctx, formatter)

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run the command line; wrong usage becomes one line in the style of every other error."""
        run: Callable[..., object] = super().main
        if not kwargs.pop("standalone_mode", True):
            return run(*args, standalone_mode=False, **kwargs)
        self.interruptions = Interruptions()
        closed = check_streams()
        if closed is not None:
            tell(closed)
            sys.exit(QprofError.exit_code)
        try:
            with self.interruptions.raised():
                code = run(*args, standalone_mode=False, **kwargs)
        except click.ClickException as error:
            tell(usage_message(error), lines=True)
            code = error.exit_code
        except click.Abort as error:
            code = tell_interruption(error.__cause__)
        sys.exit(code if isinstance(code, int) else 0)

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        """Read the options of the group; its help may go to a stream that cannot be written."""
        try:
            return super().make_context(*args, **kwargs)
        except OSError as error:
            raise click.exceptions.Exit(tell_failure(error)) from error

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; an error becomes one line on stderr and an exit code."""
        try:
            with printing_notes(debug=bool(ctx.params.get("debug"))):
                result = super().invoke(ctx)
            tell_unprinted_notes()
            sys.stdout.flush()
        except click.exceptions.Exit as ended:
            if ended.exit_code == 1:
                tell_unprinted_notes()
            raise
        except (click.ClickException, click.Abort):
            raise
        except KeyboardInterrupt as error:
            ctx.exit(tell_interruption(error))
        # The outermost layer is the one place that may catch everything: it ends the process.
        except Exception as error:
            interruptions = (one for one in causes(error) if isinstance(one, KeyboardInterrupt))
            if (interruption := next(interruptions, self.interruptions.error)) is not None:
                ctx.exit(tell_interruption(interruption))
            if ctx.params.get("debug"):
                raise
            ctx.exit(tell_failure(error))
        return result


def tell_failure(error: Exception) -> int:
    """Print an error on stderr, and return the exit code."""
    if isinstance(error, OSError | StdoutError):
        abandon(sys.stdout)  # Python writes what is left once more at its exit, and would fail again
    if isinstance(error, BrokenPipeError):
        return SIGPIPE_EXIT_CODE
    message, code = describe_error(error)
    tell(message)
    return code


def usage_message(error: click.ClickException) -> str:
    """Return the message about wrong usage: one line, or the help if no command was given."""
    text = error.format_message()
    ctx = getattr(error, "ctx", None)
    if ctx is None or text == ctx.get_help():
        return text if ctx is not None else f"error: {shown(text)}"
    advice = "" if text.endswith("?") else f"; see '{ctx.command_path} --help'"
    return shown(f"error: {text.rstrip('.')}{advice}")


def describe_error(error: Exception) -> tuple[str, int]:
    """Return the line that a user reads about an error, and the exit code."""
    if isinstance(error, QprofError):
        return f"error: {error}", error.exit_code
    if message := missing_plugin(error):  # which another plug-in needs
        return f"error: {message}", QprofError.exit_code
    if is_out_of_memory(error):
        text = (str(error).splitlines() or [type(error).__name__])[0]
        advice = "raise its limit (ulimit -v, or that of the container), or use fewer --threads"
        return f"error: the system gives this process no more memory ({text}); {advice}", QprofError.exit_code
    if isinstance(error, OSError):
        said = error.strerror or str(error) or type(error).__name__
        if error.filename is not None:
            return f"error: {error.filename}: {said}; check the path and the disk", QprofError.exit_code
        place = os.environ.get("TMPDIR", "the system's folder of them")
        return f"error: {said}; check the disk; temporary files are in {place}", QprofError.exit_code
    return (
        f"internal error: {type(error).__name__}: {error}; this is a bug in qprof: run it again as "
        "'qprof --debug ...', and please report the output, with 'qprof --version' and, if you may share it, "
        "the model, in the repository that you installed qprof from"
    ), 70


@click.group(cls=Commands, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--debug", is_flag=True, envvar="QPROF_DEBUG", help="Show a traceback on errors (or QPROF_DEBUG=1)."
)
@click.version_option(None, package_name="qprof-onnx", message="qprof %(version)s", help="Show the version.")
def main(debug: bool) -> None:
    """Profile-guided post-training quantization of ONNX models.

    For the help of a command, with an example, run qprof COMMAND --help.
    """
