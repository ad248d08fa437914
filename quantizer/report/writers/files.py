"""Writes the files of a report into a folder: whole, or not at all."""

from __future__ import annotations

import json
import os
from pathlib import Path

from ....profiles.base.atomic_files import replacing_together, write_atomically
from ....profiles.base.errors import ConfigError
from ....profiles.base.json_values import to_jsonable
from ..content import Report
from ..html.page import page
from .junit import junit
from .markdown import markdown

FORMAT = "qprof-report/1"
"""Name and version of report.json."""

NAMES = ("report.html", "report.md", "junit.xml", "report.json")
"""The files of a report."""


def report_texts(report: Report) -> dict[str, str]:
    """Return the files of a report by name; the same report gives the same bytes."""
    document = {"format": FORMAT, **to_jsonable(report)}
    texts = (
        page(report),
        markdown(report),
        junit(report),
        json.dumps(document, indent=1, allow_nan=False) + "\n",
    )
    return dict(zip(NAMES, texts, strict=True))


def write_report(report: Report, folder: str | os.PathLike[str]) -> tuple[Path, ...]:
    """Write the files of a report into a folder, which is made if it is not there; other files in it stay.

    Raises:
        ConfigError: the folder cannot be made, or is a file.
    """
    where = Path(folder)
    try:
        where.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"{where}: cannot be made into a folder ({error.strerror}); choose another name"
        ) from None
    with replacing_together() as batch:
        for name, text in report_texts(report).items():
            write_atomically(where / name, text, batch)
    return tuple(where / name for name in NAMES)
