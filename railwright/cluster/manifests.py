"""Reads the policy in a manifest: the bare document, or the ConfigMap or FabricPolicy that contains it.

Lines of errors are translated to lines of the file, and paths of errors to those in the resource.
"""

import dataclasses
import decimal
from collections.abc import Mapping
from typing import Any

import msgspec

from railwright.cluster import documents, policies
from railwright.fabric import names, views
from railwright.fabric.policy import model

_SPEC = "spec"


def read(text: str) -> model.Policy | policies.Rejected:
    """Return the policy of a file, or all its errors with lines of the file. Never raises."""
    try:
        if (resource := _find_resource(text)) is not None:
            return _read_resource(resource)
        holder = _find_policy_text(text)
    except documents.DocumentError as error:
        return policies.Rejected((policies.PolicyError("", error.line, error.problem),))
    if holder is None:
        return policies.read(text)
    result = policies.read(holder.text)
    if isinstance(result, policies.Rejected):
        moved = tuple(dataclasses.replace(error, line=_translate_line(holder, error.line)) for error in result.errors)
        return policies.Rejected(moved)
    return result


def find_document_text(text: str) -> str | None:
    """Return the text of the policy document in a file, None if a FabricPolicy contains it. Raises DocumentError."""
    if _find_resource(text) is not None:
        return None
    holder = _find_policy_text(text)
    return text if holder is None else holder.text


def read_tree(text: str) -> dict[str, Any]:
    """Return the tree of the policy document in a file, whose policy is valid."""
    resource = _find_resource(text)
    if resource is not None and (spec := documents.find_child(resource, _SPEC)):
        return build_tree(documents.build_tree(spec[1]))
    tree: dict[str, Any] = documents.read(find_document_text(text) or "").tree
    return tree


def _find_resource(text: str) -> documents.Node | None:
    """Return the first FabricPolicy with a spec, which tells it from a bare document; None without one."""
    if "spec" not in text or names.POLICY_KIND not in text:
        return None
    for root in documents.parse(text):
        kind = documents.find_child(root, "kind")
        if kind is not None and kind[1].text == names.POLICY_KIND and documents.find_child(root, _SPEC):
            return root
    return None


def _read_resource(root: documents.Node) -> model.Policy | policies.Rejected:
    """Return the policy of a FabricPolicy, or all its errors. Raises DocumentError."""
    version, spec = documents.find_child(root, "apiVersion"), documents.find_child(root, _SPEC)
    if version is None or version[1].text != names.POLICY_API_VERSION:
        line = root.line if version is None else version[0]
        return policies.Rejected((policies.PolicyError("apiVersion", line, f"must be {names.POLICY_API_VERSION}"),))
    if spec is None or spec[1].kind != "mapping":
        message = "must be a mapping (key: value) with the policy"
        return policies.Rejected((policies.PolicyError(_SPEC, root.line if spec is None else spec[0], message),))
    document = documents.build_document(spec[1])
    tree = build_tree(document.tree)
    result = policies.check(dataclasses.replace(document, tree=tree), write_spec(document.tree))
    if not isinstance(result, policies.Rejected):
        return result
    located = (dataclasses.replace(error, path=format_path(error.path)) for error in result.errors)
    return policies.Rejected(tuple(located))


def _find_policy_text(text: str) -> documents.Node | None:
    """Return the value of data."policy.yaml" in the first ConfigMap that has it; None for a text without ConfigMaps."""
    if "ConfigMap" not in text:
        return None
    without: documents.Node | None = None
    for root in documents.parse(text):
        kind = documents.find_child(root, "kind")
        if kind is None or kind[1].text != "ConfigMap":
            continue
        data = documents.find_child(root, "data")
        value = data and documents.find_child(data[1], names.POLICY_KEY)
        if value and value[1].kind == "scalar":
            return value[1]
        without = root
    if without is not None:
        raise documents.DocumentError(f'is a ConfigMap without the text data."{names.POLICY_KEY}"', without.line)
    return None


def _translate_line(holder: documents.Node, line: int | None) -> int:
    # only a literal block keeps its lines, starting after its "|"; other styles fold or escape them
    return holder.line + line if line is not None and holder.style == "|" else holder.line


# --- the policy in the spec of a FabricPolicy --------------------------------------------------------------


def write_document(resource: views.FabricPolicy) -> str:
    """Return the policy document of a resource as JSON with sorted keys. Its digest is the digest of the policy."""
    return write_spec(resource.spec or {})


def write_spec(spec: Mapping[str, Any]) -> str:
    """Return the policy document of a resource with this spec."""
    return msgspec.json.encode(_write_numbers(build_tree(spec)), order="deterministic").decode()


def build_tree(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tree of the policy document of a resource with this spec."""
    return {"apiVersion": names.POLICY_API_VERSION, "kind": names.POLICY_KIND, **spec}


def _write_numbers(tree: Any) -> Any:
    """Return the tree with floats as an API server returns whole ones, and without exponents.

    YAML 1.1, as which the text is read, takes 1e-7 for a string. msgspec encodes no integer of more than 64 bits.
    """
    if isinstance(tree, float) and not tree.is_integer():
        return msgspec.Raw(format(decimal.Decimal(repr(tree)), "f").encode())
    if isinstance(tree, int | float) and not isinstance(tree, bool):
        return msgspec.Raw(str(int(tree)).encode())
    if isinstance(tree, Mapping):
        return {key: _write_numbers(value) for key, value in tree.items()}
    return [_write_numbers(item) for item in tree] if isinstance(tree, list) else tree


def locate_in_spec(result: model.Policy | policies.Rejected) -> model.Policy | policies.Rejected:
    """Return a result of the text of `write_document` with the errors' paths in the resource, and without lines."""
    if not isinstance(result, policies.Rejected):
        return result
    located = [dataclasses.replace(error, path=format_path(error.path), line=None) for error in result.errors]
    return policies.Rejected(tuple(located))


def format_path(path: str) -> str:
    """Return the path in a resource for a path in its policy document."""
    return f"{_SPEC}{'' if path.startswith('[') or not path else '.'}{path}"
