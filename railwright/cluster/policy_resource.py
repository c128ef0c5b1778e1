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
    document = {"apiVersion": names.POLICY_API_VERSION, "kind": names.POLICY_KIND, **(resource.spec or {})}
    return msgspec.json.encode(_write_floats(document), order="deterministic").decode()


def _write_floats(tree: Any) -> Any:
    """Return the tree with floats without exponents: YAML 1.1, as which the text is read, takes 1e-7 for a string."""
    if isinstance(tree, float):
        return msgspec.Raw(format(decimal.Decimal(repr(tree)), "f").encode())
    if isinstance(tree, Mapping):
        return {key: _write_floats(value) for key, value in tree.items()}
    return [_write_floats(item) for item in tree] if isinstance(tree, list) else tree


def read(resource: policy_views.FabricPolicy) -> model.Policy | policies.Rejected:
    """Return the policy of a resource, or all its errors. Never raises."""
    return locate_in_spec(policies.read(write_document(resource)))


def locate_in_spec(result: model.Policy | policies.Rejected) -> model.Policy | policies.Rejected:
    """Return a result of the text of `write_document` with the errors' paths in the resource, and without lines."""
    if not isinstance(result, policies.Rejected):
        return result
    return policies.Rejected(tuple(map(_locate, result.errors)))


def _locate(error: policies.PolicyError) -> policies.PolicyError:
    separator = "." if error.path and not error.path.startswith("[") else ""
    return dataclasses.replace(error, path=f"{_SPEC}{separator}{error.path}", line=None)
