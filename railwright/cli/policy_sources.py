"""Reads the policy in force in a cluster, whether railwright is disabled there, and the labels of a namespace."""

import contextlib
from collections.abc import Mapping
from typing import Any
from urllib import parse

import msgspec

from railwright.cli import object_files, output
from railwright.cluster import client as clients
from railwright.cluster import errors, installed_names, last_policy, policies, resources, watch_wire
from railwright.fabric import names, views
from railwright.fabric.policy import model

CONFIG_MAP = f"ConfigMap {installed_names.NAMESPACE}/{installed_names.POLICY}"
LAST_CONFIG_MAP = f"ConfigMap {installed_names.NAMESPACE}/{installed_names.LAST_POLICY}"
_FORBIDDEN = 403
_FROM_FILE = "To read it from a file: --policy FILE"
_NO_POLICY = (
    f"there is no {CONFIG_MAP}: railwright is not installed in this cluster, has no policy yet, or was installed "
    "under other names (set RAILWRIGHT_NAMESPACE and RAILWRIGHT_INSTALLATION); to see which: railwright check"
)

DISABLED = (
    "railwright is disabled (`railwright disable`), so the API server creates pods without their networks; to "
    "restore it: railwright enable"
)
UNENFORCED = (
    "the policy is in mode warn, so railwright injects nothing; to enforce the policy: set `mode: enforce`, or remove "
    "the key"
)


class _ConfigMap(msgspec.Struct):
    """The fields that identify an answer as a ConfigMap."""

    metadata: dict[str, msgspec.Raw]
    data: dict[str, str] | None = None


async def fetch_policy(
    client: clients.Client, role: str = f"Role {installed_names.USER_ROLE}"
) -> tuple[model.Policy, str]:
    """Return the policy in force in the cluster, and the name of its ConfigMap. Raise UnreadableError or ClusterError.

    While the policy is invalid, the last valid policy is in force, and a note is printed. `role` is the role with
    the right to read the policy, for the message to a caller who lacks this right.
    """
    try:
        result = await find_policy(client)
    except errors.ApiError as error:
        if error.foreign or error.status != _FORBIDDEN:
            raise
        raise output.UnreadableError(f"{error.sentence}; the {role} has this right. {_FROM_FILE}") from None
    if result is None:
        raise output.UnreadableError(f"{_NO_POLICY}. {_FROM_FILE}")
    fix = f"correct it with kubectl -n {installed_names.NAMESPACE} edit configmap {installed_names.POLICY}"
    if isinstance(result, policies.RejectedPolicy):
        last: model.Policy | policies.RejectedPolicy | None = None
        with contextlib.suppress(errors.ClusterError):  # the role of a tenant lacks the right to read it
            last = await last_policy.read_copy(client)
        if isinstance(last, model.Policy):
            first = output.escape_controls(result.errors[0].format_with_file(CONFIG_MAP))
            output.print_note(f"{first}; until it is corrected, the last valid policy is used, from {LAST_CONFIG_MAP}")
            return last, LAST_CONFIG_MAP
    return object_files.require_valid(result, CONFIG_MAP, fix), CONFIG_MAP


async def find_policy(client: clients.Client) -> model.Policy | policies.RejectedPolicy | None:
    """Return the policy in the ConfigMap or, if invalid, its errors; None without a ConfigMap. Raise ClusterError."""
    path = f"{resources.POLICY.path}/{installed_names.POLICY}"
    config_map = await watch_wire.find_object(client, path, _ConfigMap)
    return None if config_map is None else policies.read((config_map.data or {}).get(names.POLICY_KEY, ""))


async def find_readable_policy(client: clients.Client) -> model.Policy | None:
    """Return the policy, or the last valid policy while it is invalid; None if the caller may read neither."""
    with contextlib.suppress(errors.ClusterError):
        policy = await find_policy(client)
        if isinstance(policy, policies.RejectedPolicy):
            policy = await last_policy.read_copy(client)
        return policy if isinstance(policy, model.Policy) else None
    return None


async def find_namespace_labels(client: clients.Client, namespace: str) -> Mapping[str, str] | None:
    """Return the labels of a namespace, None if it does not exist. Raise ClusterError."""
    path = f"{resources.NAMESPACES.path}/{parse.quote(namespace, safe='')}"
    found = await watch_wire.find_object(client, path, views.Namespace)
    return None if found is None else found.metadata.labels


async def is_policy_in_mode_warn(client: clients.Client) -> bool:
    """Return True if the policy is in mode warn; False also if it cannot be read."""
    policy = await find_readable_policy(client)
    return policy is not None and not policy.document.is_enforced


async def describe_disabled(client: clients.Client) -> str:
    """Return a message with the fix if `railwright disable` has deleted the webhooks, otherwise "". Raise ClusterError.

    The webhooks are looked for even if the copy exists that `disable` keeps, because an upgrade may have created them
    again. For a caller who may not read webhooks, the copy decides. A caller who may not read the copy gets "".
    """
    copy = f"/api/v1/namespaces/{installed_names.NAMESPACE}/configmaps/{installed_names.DISABLED}"
    webhooks = f"/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/{installed_names.INSTALLATION}"
    described = ""
    try:
        if await watch_wire.find_object(client, copy, views.ConfigMap):
            described = DISABLED
            return "" if await watch_wire.find_object(client, webhooks, dict[str, Any]) else described
    except errors.ApiError as error:
        if error.foreign or error.status != _FORBIDDEN:
            raise
    return described
