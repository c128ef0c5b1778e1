"""Reads the objects of a file for a command: a manifest, a policy, or a snapshot of a cluster.

A manifest has YAML documents or JSON, with Lists unfolded. An empty file is an error, because its empty output would
look like success.
"""

import re
from typing import Any

from railwright.cli import output
from railwright.cluster import documents, policies, snapshots
from railwright.fabric import names
from railwright.fabric.policy import model

Tree = dict[str, Any]


def read_manifest(text: str, file: str) -> list[Tree]:
    """Return the objects of a file, without nulls, as the API server has them. Raises UnreadableError.

    A document without kind and name, such as a policy, is skipped, because folders may contain one.
    """
    objects: list[Tree] = []
    has_policy = False
    try:
        for root in documents.parse(text):
            tree = documents.remove_nulls(documents.build_document(root).tree, names.FABRIC)
            if isinstance(tree, dict) and tree.get("apiVersion") == names.POLICY_API_VERSION:
                has_policy = True
            elif tree is not None:
                objects += snapshots.list_objects(tree)
    except documents.DocumentError as error:
        raise output.UnreadableError(f"{file}: {error}") from None
    if not objects and not has_policy:
        raise output.UnreadableError(f"{file}: contains no object; expected a pod or a workload")
    return objects


def read_policy(path: str) -> model.Policy:
    """Return the policy in a file, `-` for standard input. Raise UnreadableError with all its errors."""
    fix = f"correct it and check it with railwright policy validate {path}"
    return require_valid(policies.read_manifest(output.read_text(path)), path, fix)


def require_valid(result: model.Policy | policies.RejectedPolicy, source: str, fix: str) -> model.Policy:
    """Return a valid policy. Raise UnreadableError with all errors of an invalid policy, and with `fix`."""
    if not isinstance(result, policies.RejectedPolicy):
        return result
    first, *others = [output.escape_controls(error.format_with_file(source)) for error in result.errors]
    if not others:
        raise output.UnreadableError(f"{first}; {fix}")
    raise output.UnreadableError("\n  ".join([f"the policy is invalid; {fix}:", first, *others]))


def read_snapshot(path: str, *, needs: str = "") -> dict[str, list[Any]]:
    """Return the objects of a snapshot by kind. Raise UnreadableError if there are none, or none of kind `needs`."""
    try:
        objects = snapshots.read(output.read_text(path))
    except documents.DocumentError as error:
        raise output.UnreadableError(f"--snapshot {path}: {error}") from None
    if not any(objects.values()) or (needs and not objects[needs]):
        missing = needs or "Node, Pod or other object that railwright reads"
        raise output.UnreadableError(
            f"--snapshot {path}: contains no {missing}; write it with kubectl get nodes,pods,namespaces -A -o yaml"
        )
    return objects


_MISMATCH = re.compile(
    r"(?:(?P<place>[^`]+): )?Expected `(?P<types>[^`]+)`, got `(?P<type>[^`]+)`(?: - at `\$\.?(?P<path>[^`]*)`)?"
)
_ROOT = "the object"
_WORDS = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "object": "a mapping (key: value)",
    "array": "a list",
}
_UNQUOTED = frozenset({"int", "float", "bool"})  # what YAML makes of 22, 0.5 and yes


def describe_mismatch(error: Exception) -> str:
    """Return the path, expected type and fix for a value of a wrong type; any other error as it is.

    The path begins at the object, even if msgspec decoded only a pod template of it.
    """
    match = _MISMATCH.fullmatch(str(error))
    if match is None:
        return str(error)
    types = [name for name in match["types"].split(" | ") if name != "null"]
    expected = " or ".join(_WORDS.get(name, name) for name in types)
    fix = "; put it in quotes" if "str" in types and match["type"] in _UNQUOTED else ""
    place = "" if match["place"] == _ROOT else match["place"]
    path = ".".join(filter(None, (place, match["path"]))) or _ROOT
    return f"{path}: expected {expected}, not {_WORDS.get(match['type'], match['type'])}{fix}"
