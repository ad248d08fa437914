"""`qprof schema`: the JSON Schemas of files and results."""

from __future__ import annotations

import click

from ..console import echo, print_table
from ..options import Command


@click.command("schema", cls=Command)
@click.argument("name", required=False, metavar="[NAME]")
def command(name: str | None) -> None:
    """Print the JSON Schema of a file or of a result.

    Editors use it to complete and check a configuration file or a plan, and programs to check --json results.
    The key format of a result names its schema.

    \b
    Examples:
      qprof schema
      qprof schema config > config.schema.json
    """
    import json

    from ...profiles.base.errors import ConfigError, nearest
    from ..schemas import DOCUMENTS, schema_of

    if name is None:
        print_table(["name", "of"], [[known, document.about] for known, document in DOCUMENTS.items()])
        return
    if name not in DOCUMENTS:
        raise ConfigError(
            f"schema '{name}': not one of {', '.join(DOCUMENTS)}; choose one.{nearest(name, DOCUMENTS)}"
        )
    echo(json.dumps(schema_of(name), indent=2))
