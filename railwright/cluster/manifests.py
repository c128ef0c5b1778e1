"""Finds the policy in a file: the bare document, or the ConfigMap manifest that contains it.

Lines of errors are translated to lines of the file.
"""

import dataclasses

from railwright.cluster import documents, nodes, policies
from railwright.fabric import names
from railwright.fabric.policy import model


def read(text: str) -> model.Policy | policies.Rejected:
    """Return the policy of a file, or all its errors with lines of the file. Never raises."""
    try:
        holder = _find_policy_text(text)
    except nodes.DocumentError as error:
        return policies.Rejected((policies.PolicyError("", error.line, error.problem),))
    if holder is None:
        return policies.read(text)
    result = policies.read(holder.text)
    if isinstance(result, policies.Rejected):
        moved = tuple(dataclasses.replace(error, line=_translate_line(holder, error.line)) for error in result.errors)
        return policies.Rejected(moved)
    return result


def _find_policy_text(text: str) -> nodes.Node | None:
    """Return the value of data."policy.yaml" in the first ConfigMap that has it; None for a text without ConfigMaps."""
    if "ConfigMap" not in text:
        return None
    without: nodes.Node | None = None
    for root in nodes.parse(text):
        kind = documents.find_child(root, "kind")
        if kind is None or kind[1].text != "ConfigMap":
            continue
        data = documents.find_child(root, "data")
        value = data and documents.find_child(data[1], names.POLICY_KEY)
        if value and value[1].kind == "scalar":
            return value[1]
        without = root
    if without is not None:
        raise nodes.DocumentError(f'is a ConfigMap without the text data."{names.POLICY_KEY}"', without.line)
    return None


def _translate_line(holder: nodes.Node, line: int | None) -> int:
    # only a literal block keeps its lines, starting after its "|"; other styles fold or escape them
    return holder.line + line if line is not None and holder.style == "|" else holder.line
