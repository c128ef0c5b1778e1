"""Reads the objects of a file for a command: a manifest, or a snapshot of a cluster. Formats a pod as YAML.

A manifest has YAML documents or JSON, with Lists unfolded. An empty file is an error, because its empty output would
look like success.
"""

import difflib
import itertools
import json
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from railwright.cli import formats, output
from railwright.cluster import documents, snapshots
from railwright.fabric import names
from railwright.fabric.workloads import frameworks

Tree = dict[str, Any]


def read_manifest(text: str, file: str) -> list[Tree]:
    """Return the objects of a file, without nulls, as the API server has them. Raises UnreadableError.

    A policy is a document without kind and name, and no object: folders have it beside the manifests.
    """
    objects: list[Tree] = []
    has_policy = False
    try:
        with output.show_progress(f"reading {output.escape_controls(file)}") as advance:
            for root in documents.parse(text):
                tree = documents.remove_nulls(documents.build_tree(root))
                if isinstance(tree, dict) and tree.get("apiVersion") == names.POLICY_API_VERSION:
                    has_policy = True
                elif tree is not None:
                    objects += snapshots.list_objects(tree)
                advance()
    except (documents.DocumentError, snapshots.SnapshotError) as error:
        raise output.UnreadableError(f"{file}: {error}") from None
    if not objects and not has_policy:
        raise output.UnreadableError(f"{file}: contains no object; expected a pod or a workload")
    return objects


def format_title(tree: Tree, namespace: str = "") -> str:
    """Return kind, namespace and name of an object for messages, as far as it has them."""
    metadata = frameworks.get_mapping(tree, "metadata")
    name = metadata.get("name") or f"{metadata.get('generateName', '')}*"
    namespace = namespace or metadata.get("namespace") or ""
    return f"{tree.get('kind')} {namespace}/{name}" if namespace else f"{tree.get('kind')} {name}"


RECORD = f"{names.INJECTION} (JSON)"  # key of the decoded injection record
_NEVER = 10**6  # columns; no line is folded


def format_yaml_lines(tree: Any) -> list[str]:
    """Return the lines of a tree: text of several lines as a block, nothing folded.

    PyYAML ends a document whose last text has empty last lines with a line of dots, which is left out.
    """
    return formats.format_yaml(tree, width=_NEVER).removesuffix("...\n").removesuffix("\n").split("\n")


_DIFFERENCES = {"+": "green", "-": "red", "@": "cyan"}


def format_difference(before: Tree, after: Tree, context: int | None = None) -> Iterator[tuple[str, str]]:
    """Yield the lines of a unified diff of two pods, each with its style. Without `context`, all unchanged lines."""
    old, new = (format_yaml_lines(decode_record(pod)) for pod in (before, after))
    number = max(len(old), len(new)) if context is None else context
    for line in itertools.islice(difflib.unified_diff(old, new, n=number, lineterm=""), 2, None):  # 2 name files
        yield line, _DIFFERENCES.get(line[:1], "dim")


def decode_record(pod: Tree) -> Tree:
    """Return the pod with its injection record, which is one line of JSON, as a mapping under RECORD.

    Empty values are left out. Returns the pod as it is if the annotation is missing or was written by a user.
    """
    annotations = dict(frameworks.get_mapping(pod, "metadata", "annotations"))
    try:
        record = json.loads(annotations.pop(names.INJECTION, "") or "null")
    except ValueError:
        return pod
    if not isinstance(record, dict):
        return pod
    fields = {
        key: ", ".join(map(str, value)) if isinstance(value, list) else value for key, value in record.items() if value
    }
    return {**pod, "metadata": {**pod["metadata"], "annotations": {**annotations, RECORD: fields}}}


def read_snapshot(path: str, option: str = "--snapshot", *, needs: str = "") -> dict[str, list[Any]]:
    """Return views by kind. Raises UnreadableError for a file without any object, or without one of kind `needs`."""
    try:
        objects = snapshots.read(output.read_text(path))
    except snapshots.SnapshotError as error:
        raise output.UnreadableError(f"{option} {path}: {error}") from None
    if not any(objects.values()) or (needs and not objects[needs]):
        missing = needs or "Node, Pod or other object that railwright reads"
        raise output.UnreadableError(
            f"{option} {path}: contains no {missing}; write it with kubectl get nodes,pods,namespaces -A -o yaml"
        )
    return objects


_MISMATCH = re.compile(r"Expected `(?P<types>[^`]+)`, got `(?P<type>[^`]+)`(?: - at `\$\.?(?P<path>[^`]*)`)?")
_WORDS = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "object": "a mapping (key: value)",
    "array": "a list",
}
_UNQUOTED = frozenset({"int", "float", "bool"})  # what YAML makes of 22, 0.5 and yes


def describe_mismatch(error: msgspec.ValidationError) -> str:
    """Return path, expected type and fix of a wrong value; the error's own words if it is about something else."""
    match = _MISMATCH.fullmatch(str(error))
    if match is None:
        return str(error)
    types = [name for name in match["types"].split(" | ") if name != "null"]
    expected = " or ".join(_WORDS.get(name, name) for name in types)
    fix = "; put it in quotes" if "str" in types and match["type"] in _UNQUOTED else ""
    return f"{match['path'] or 'the object'}: expected {expected}, not {_WORDS.get(match['type'], match['type'])}{fix}"
