"""Reads the policy in force in a cluster: of the FabricPolicy if it exists, otherwise of the ConfigMap."""

from typing import Any

import msgspec

from railwright.cli import cluster_access, options, output, policies
from railwright.cluster import client as clients
from railwright.cluster import errors, installed_names, resources
from railwright.cluster import policies as policy_reader
from railwright.fabric import names
from railwright.fabric.policy import model

_FORBIDDEN, _NOT_FOUND = 403, 404
_FROM_FILE = "To read it from a file: --policy FILE"
_NO_POLICY = (
    f"there is no {installed_names.POLICY_OBJECTS} in namespace {installed_names.NAMESPACE}: railwright is not"
    " installed in this cluster, or has no policy yet; to see which: railwright check"
)


class _ConfigMap(msgspec.Struct):
    """The fields by which an answer is recognized as a ConfigMap."""

    metadata: dict[str, msgspec.Raw]
    data: dict[str, str] | None = None


class _FabricPolicy(msgspec.Struct):
    """The fields by which an answer is recognized as a FabricPolicy."""

    metadata: dict[str, msgspec.Raw]
    spec: dict[str, Any] | None = None


class Holder(msgspec.Struct, frozen=True):
    """The object that holds the policy in force."""

    kind: str
    namespace: str = installed_names.NAMESPACE
    name: str = installed_names.POLICY

    def __str__(self) -> str:
        """Return kind, namespace and name: `ConfigMap railwright-system/railwright-policy`."""
        return f"{self.kind} {self.namespace}/{self.name}"


_RESOURCE, _CONFIG_MAP = Holder(names.POLICY_KIND), Holder("ConfigMap")


def read(path: str, cluster: options.ClusterOptions) -> model.Policy:
    """Return the policy in the file `path` if there is one, otherwise the policy in the cluster.

    Raises UnreadableError or ClusterError.
    """
    if path:
        return policies.read_file(path)
    return cluster_access.run(cluster, fetch, "read the policy from a file: --policy FILE")


async def fetch(client: clients.Client) -> model.Policy:
    """Return the policy in force of a client's cluster. Raise UnreadableError or ClusterError."""
    return (await fetch_with_source(client))[0]


async def fetch_with_source(client: clients.Client) -> tuple[model.Policy, str]:
    """Return the policy in force and the object that has it. Raise UnreadableError or ClusterError."""
    try:
        held = await read_objects(client)
    except output.UnreadableError as error:
        raise output.UnreadableError(f"{error}. {_FROM_FILE}") from None
    except errors.ApiError as error:
        if error.foreign or error.status != _FORBIDDEN:
            raise
        raise output.UnreadableError(f"{error.sentence}. {_FROM_FILE}") from None
    if held is None:
        raise output.UnreadableError(f"{_NO_POLICY}. {_FROM_FILE}")
    holder, result = held
    fix = f"correct it with kubectl -n {holder.namespace} edit {holder.kind.lower()} {holder.name}"
    return policies.require_valid(result, str(holder), fix), str(holder)


async def read_objects(client: clients.Client) -> tuple[Holder, model.Policy | policy_reader.Rejected] | None:
    """Return the object that has the policy, a FabricPolicy first, and the policy or its errors; None without one.

    Raises ClusterError, and UnreadableError for an account that may not read the FabricPolicy.
    """
    resource = await _find_resource(client)
    if resource is not None:
        spec = policy_reader.write_spec(resource.spec or {})
        return _RESOURCE, policy_reader.locate_in_spec(policy_reader.read(spec))
    path = f"{resources.POLICY.path}/{installed_names.POLICY}"
    configmap = await cluster_access.find_object(client, path, _ConfigMap)
    if configmap is None:
        return None
    return _CONFIG_MAP, policy_reader.read((configmap.data or {}).get(names.POLICY_KEY, ""))


async def _find_resource(client: clients.Client) -> _FabricPolicy | None:
    """Return the FabricPolicy, None if it or its definition does not exist. Raise UnreadableError if it is forbidden.

    An API server answers with a text, not a Status, for an API group that it does not have.
    """
    try:
        path = f"{resources.FABRIC_POLICIES.path}/{installed_names.POLICY}"
        return await cluster_access.read_object(client, path, _FabricPolicy)
    except errors.ApiError as error:
        if error.status == _NOT_FOUND:
            return None
        if error.status != _FORBIDDEN or error.foreign:
            raise
        # the ConfigMap may have no effect, so it is not read in its place
        raise output.UnreadableError(
            f"{error.sentence}. The Role {installed_names.USER_ROLE} has this right. The right to get {_CONFIG_MAP} is"
            f" not enough: a {names.POLICY_KIND} of this name would override it"
        ) from None
