"""Checks the ResourceClaims and ResourceClaimTemplates of manifests, and pods that refer to them: `railwright lint`."""

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from railwright.cli import lint_reports, output
from railwright.cluster import documents
from railwright.fabric.lint import claim_types
from railwright.fabric.lint.rules import claims as claim_rules

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
            for finding, place in claim_rules.check(ctx)
        ]
    return lint_reports.Report(tuple(located), len(claims), templates=len(claims))


def check_pod(
    path: str, document: documents.Document, spec: documents.Path, ctx: claim_types.PodClaimContext
) -> Iterator[lint_reports.Located]:
    """Yield the findings about the claims of a pod. `spec` is the path of its spec."""
    for finding, place in claim_rules.check_pod(ctx):
        yield lint_reports.Located(path, document.find_line((*spec, *place)), ctx.title, finding)


def list_templates(texts: Iterable[str]) -> dict[str, claim_types.ClaimedDevices]:
    """Return the `devices` of all ResourceClaimTemplates by name. What cannot be read is left out."""
    templates = {}
    for text in texts:
        if _TEMPLATE not in text:
            continue
        with contextlib.suppress(documents.DocumentError, output.UnreadableError):
            for root in documents.parse(text):
                documents.keep_last_keys(root)
                document = documents.build_document(root)
                for position, tree in _list_claims(document.tree):
                    ctx, _ = _read("", document, position, tree)
                    if ctx.is_template:
                        templates[ctx.title.rpartition("/")[2].rpartition(" ")[2]] = ctx.devices
    return templates


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
        raise output.UnreadableError(
            f"{path}:{line}: is not a valid {kind}: {lint_reports.describe_type(error)}"
        ) from None
    return claim_types.ClaimContext(f"{kind} {title}", devices, kind == _TEMPLATE), (*position, *below)
