"""Checks the ResourceClaims and ResourceClaimTemplates of a manifest, for `railwright lint`."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from railwright.cli import lint_reports, output
from railwright.cluster import documents
from railwright.fabric.lint import claim_engine, claim_types

_GROUP = "resource.k8s.io"
_TEMPLATE = "ResourceClaimTemplate"
_Object = tuple[documents.Path, Mapping[str, Any]]


def check_document(path: str, document: documents.Document) -> lint_reports.Report:
    """Return the findings about the claims of a document. Raises UnreadableError if one is invalid."""
    located: list[lint_reports.Located] = []
    claims = list(_list_claims(document.tree))
    for position, tree in claims:
        ctx, below = _read(path, document, position, tree)
        located += [
            lint_reports.Located(path, document.find_line((*below, *place)), ctx.title, finding)
            for finding, place in claim_engine.check(ctx)
        ]
    return lint_reports.Report(tuple(located), len(claims), templates=len(claims))


def _list_claims(tree: Any) -> Iterator[_Object]:
    """Yield the claims of an object or a List, each with its path."""
    if not isinstance(tree, Mapping):
        return
    items = tree.get("items")
    listed: list[_Object] = [((), tree)]
    if isinstance(items, list):
        listed += [(("items", index), item) for index, item in enumerate(items) if isinstance(item, Mapping)]
    for position, item in listed:
        group = str(item.get("apiVersion") or "").partition("/")[0]
        if group == _GROUP and item.get("kind") in claim_types.KINDS:
            yield position, item


def _read(
    path: str, document: documents.Document, position: documents.Path, tree: Mapping[str, Any]
) -> tuple[claim_types.ClaimContext, documents.Path]:
    """Return a claim, and the path of its `devices`."""
    kind = str(tree["kind"])
    below: documents.Path = ("spec", "spec", "devices") if kind == _TEMPLATE else ("spec", "devices")
    part: Any = documents.remove_nulls(tree)
    for step in below:
        part = part.get(step) if isinstance(part, Mapping) else None
    metadata = tree.get("metadata")
    name = metadata if isinstance(metadata, Mapping) else {}
    title = "/".join(str(name[key]) for key in ("namespace", "name") if name.get(key))
    try:
        devices = claim_types.read_devices(part or {})
    except msgspec.ValidationError as error:
        line = document.find_line((*position, *below))
        raise output.UnreadableError(f"{path}:{line}: is not a valid {kind}: {error}") from None
    return claim_types.ClaimContext(f"{kind} {title}", devices, kind == _TEMPLATE), (*position, *below)
