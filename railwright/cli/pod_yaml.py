"""Formats pods as YAML to be compared line by line."""

import json
from typing import Any

from railwright.cli import formats
from railwright.cli.manifest_files import Tree, get_mapping
from railwright.fabric import names

RECORD = f"{names.INJECTION} (JSON)"  # key of the decoded injection record
_NEVER = 10**6  # columns; no line is folded


def format_lines(tree: Any) -> list[str]:
    """Return the lines of a tree: text of several lines as a block, nothing folded."""
    return formats.format_yaml(tree, width=_NEVER).splitlines()


def decode_record(pod: Tree) -> Tree:
    """Return the pod with its injection record, which is one line of JSON, as a mapping under RECORD.

    Returns the pod as it is if the annotation is missing or was written by a user.
    """
    annotations = dict(get_mapping(pod, "metadata", "annotations"))
    try:
        record = json.loads(annotations.pop(names.INJECTION, "") or "null")
    except ValueError:
        return pod
    if not isinstance(record, dict):
        return pod
    fields = {key: ", ".join(map(str, value)) if isinstance(value, list) else value for key, value in record.items()}
    return {**pod, "metadata": {**pod["metadata"], "annotations": {**annotations, RECORD: fields}}}
