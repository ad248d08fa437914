"""Digests of files that carry one: a damaged file whose digest fits, so that what comes after it is tried."""

from __future__ import annotations

import hashlib
import json
import re

from damage.cases import Content


def sealed(name: str, content: Content) -> Content:
    """Return a checkpoint or a tuning state with the digest of what it says now; another file as it is."""
    if name == "progress.qprof":
        return sealed_checkpoint(content)
    return sealed_state(content) if name == "state.json" else content


def sealed_checkpoint(content: Content) -> Content:
    """Return a checkpoint with its digest, see `profiles/runner/checkpoint.py`."""
    (first, times), *rest = content
    head, _, body = first.partition(b"\n")
    following = ((body, times), *rest)
    digest = hashlib.blake2b(digest_size=32)
    for piece, count in following:
        digest.update(piece * count)
    return ((head.split(b" ")[0] + b" " + digest.hexdigest().encode() + b"\n", 1), *following)


def sealed_state(content: Content) -> Content:
    """Return a state with its digest, see `quantizer/search/state.py`; what is no JSON object as it is."""
    text = b"".join(piece * times for piece, times in content)
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return content
    if not isinstance(document, dict) or not isinstance(document.pop("sha256", None), str):
        return content
    digest = hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
    return ((re.sub(rb'("sha256": ")\w*"', rb"\g<1>" + digest.encode() + b'"', text), 1),)
