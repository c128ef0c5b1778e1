"""Reads the policy in the spec of a FabricPolicy: the text of its document, and errors with paths in the resource."""

import dataclasses
import decimal
from collections.abc import Mapping
from typing import Any

import msgspec

from railwright.cluster import policies
from railwright.fabric import names, policy_views
from railwright.fabric.policy import model

_SPEC = "spec"


def write_document(resource: policy_views.FabricPolicy) -> str:
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


def read(resource: policy_views.FabricPolicy) -> model.Policy | policies.Rejected:
    """Return the policy of a resource, or all its errors. Never raises."""
    return locate_in_spec(policies.read(write_document(resource)))


def locate_in_spec(result: model.Policy | policies.Rejected) -> model.Policy | policies.Rejected:
    """Return a result of the text of `write_document` with the errors' paths in the resource, and without lines."""
    if not isinstance(result, policies.Rejected):
        return result
    located = [dataclasses.replace(error, path=format_path(error.path), line=None) for error in result.errors]
    return policies.Rejected(tuple(located))


def format_path(path: str) -> str:
    """Return the path in a resource for a path in its policy document."""
    return f"{_SPEC}{'' if path.startswith('[') or not path else '.'}{path}"
