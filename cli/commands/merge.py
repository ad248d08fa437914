"""`qprof merge`: the profiles of shards of the data become one."""

from __future__ import annotations

from pathlib import Path

import click

from ..console import echo, tell_findings
from ..options import EXISTING, NEW, FileCommand


@click.command("merge", cls=FileCommand)
@click.argument("profiles", type=EXISTING, nargs=-1, required=True, metavar="PROFILE.yaml...")
@click.option("-o", "--output", required=True, type=NEW, metavar="MERGED.yaml", help="Profile to write.")
@click.option(
    "--allow-duplicates", is_flag=True, help="Accept samples that two profiles contain, with a note."
)
def command(profiles: tuple[Path, ...], output: Path, allow_duplicates: bool) -> None:
    """Merge profiles of parts of the data into one profile.

    The merged profile is, byte for byte, the one that qprof dump-profile writes for all samples at once.
    The order of the shards does not matter. All must come from one model. It is an error if two of them
    contain the same samples, except with --allow-duplicates.

    \b
    Example:
      qprof merge shard-1.yaml shard-2.yaml shard-3.yaml -o profile.yaml
    """
    from ...quantizer.api.profiling import merge

    profile = merge(profiles, output, allow_duplicates=allow_duplicates)
    echo(f"{output}: {len(profile)} tensors, {profile.data.samples} samples, from {len(profiles)} profiles")
    tell_findings(profile.findings)
