"""The page: sections, style and script in one file that loads nothing and that no name can break out of."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from functools import cache
from importlib.resources import files

from ..content import Report
from .markup import esc
from .nodes import float_section, graph_section
from .noise import budget_section, tensor_noise_section
from .others import drift_section, provenance_section, samples_section, trials_section
from .payload import payload
from .summary import gates_section, hero, outputs_section, what_ifs_section
from .tensors import shared_section, tensors_section

SCRIPTS = ("page.js", "tensor.js", "graph.js")
"""The scripts, in the order in which they run: one text in the page."""

SECTIONS = (
    ("summary", "Summary", hero),
    ("gates", "Gates", gates_section),
    ("outputs", "Outputs", outputs_section),
    ("try", "What to try", what_ifs_section),
    ("trials", "Trials", trials_section),
    ("budget", "Noise budget", budget_section),
    ("layers", "Tensor by tensor", tensor_noise_section),
    ("tensors", "Tensors", tensors_section),
    ("graph", "Graph", graph_section),
    ("float", "Why float", float_section),
    ("shared", "Shared scales", shared_section),
    ("samples", "Samples", samples_section),
    ("drift", "Drift", drift_section),
    ("provenance", "Provenance", provenance_section),
)
"""Id, name in the list of contents, and writer of each section, in order."""


def page(report: Report) -> str:
    """Return report.html."""
    style, script = asset("report.css"), "\n".join(map(asset, SCRIPTS))
    policy = (
        f"default-src 'none'; style-src 'sha256-{digest(style)}'; script-src 'sha256-{digest(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    sections = [(id_, name, write(report)) for id_, name, write in SECTIONS]
    links = "".join(f'<li><a href="#{id_}">{name}</a></li>' for id_, name, body in sections if body)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f"<title>{esc(report.title)} | qprof</title>\n<style>{style}</style>\n</head>\n<body>\n"
        '<a class="skip" href="#main">Skip to the report</a>\n'
        f'<header><div><p class="brand">qprof report</p><h1>{esc(report.title)}</h1></div>'
        '<button type="button" id="theme" aria-pressed="false">Dark theme</button></header>\n'
        f'<nav aria-label="Sections"><ul>{links}</ul></nav>\n<main id="main" tabindex="-1">\n'
        '<noscript><p class="note">Without scripts there is no search, no sorting, no card and no graph; '
        "all tables are here.</p></noscript>\n"
        f"{''.join(body for _, _, body in sections)}</main>\n"
        f"<footer><p>{esc(report.tool)}. This file is complete: it loads nothing.</p></footer>\n"
        f'<script type="application/json" id="data">{payload(report)}</script>\n'
        f"<script>{script}</script>\n</body>\n</html>\n"
    )


@cache
def asset(name: str) -> str:
    """Return a file of the folder of style and scripts."""
    return files(__package__.rpartition(".")[0]).joinpath("assets", name).read_text("utf-8")


def digest(text: str) -> str:
    """Return the SHA-256 of a text as a content security policy writes it."""
    return b64encode(hashlib.sha256(text.encode()).digest()).decode()
