"""Checks of permissions: of the caller, to install and to read, and of the servers, by the roles in manifests/base.

A server that loses a permission goes on with what it has read before, so nothing else fails at first. The API server is
asked (SubjectAccessReview) instead of comparing roles and bindings: a site may grant the permissions in its own way.
"""

import functools
import importlib.resources
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from railwright.cli.checking import check_rows
from railwright.cli.checking.check_rows import Assessment, fail, ok, skip, warn
from railwright.cli.checking.snapshots import PERMISSIONS, SERVER_PERMISSIONS, Snapshot, get_path
from railwright.cluster import installed_names
from railwright.cluster.failures import Permission
from railwright.fabric import text
from railwright.fabric.policy import model

FILE = "server_permissions.json"  # written by documentation/permissions.py
_WEBHOOK = "railwright-webhook"  # in FILE
_INSTALLATION = "railwright"  # first part of the names in FILE
_INSTALLED_KINDS = {  # API group -> resources of manifests/base
    "": ("namespaces", "serviceaccounts", "configmaps", "services", "secrets", "resourcequotas"),
    "apps": ("deployments",),
    "coordination.k8s.io": ("leases",),
    "networking.k8s.io": ("networkpolicies",),
    "policy": ("poddisruptionbudgets",),
    "apiextensions.k8s.io": ("customresourcedefinitions",),
    "rbac.authorization.k8s.io": ("clusterroles", "clusterrolebindings", "roles", "rolebindings"),
    "admissionregistration.k8s.io": (
        "mutatingwebhookconfigurations",
        "validatingwebhookconfigurations",
        "validatingadmissionpolicies",
        "validatingadmissionpolicybindings",
    ),
}
TO_INSTALL = tuple(
    Permission("create", group, resource) for group, resources in _INSTALLED_KINDS.items() for resource in resources
)


class _Rule(msgspec.Struct, frozen=True, rename="camel"):
    """A rule of a Role or ClusterRole."""

    api_groups: tuple[str, ...]
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    resource_names: tuple[str, ...] = ("",)


class _Rules(msgspec.Struct, frozen=True):
    cluster: tuple[_Rule, ...] = ()
    namespace: tuple[_Rule, ...] = ()


def list_accounts(snapshot: Snapshot) -> Mapping[str, str]:
    """Return the ServiceAccount of each server's Deployment, by the server's name in FILE."""
    accounts = {}
    for server in _read_rules():
        deployment = snapshot.find("deployments", server.replace(_INSTALLATION, installed_names.INSTALLATION, 1))
        if deployment is not None:
            account = get_path(deployment, "spec", "template", "spec", "serviceAccountName")
            accounts[server] = str(account or "default")
    return accounts


def list_permissions(server: str, namespace: str, policy: model.FabricPolicy | None = None) -> Sequence[Permission]:
    """Return the permissions that a server needs, with those to copy the ConfigMaps that the policy names."""
    rules = _read_rules()[server]
    copies = _list_rights_of_copies(policy) if policy is not None and server == _WEBHOOK else ()
    return [*_expand(rules.cluster, ""), *_expand(rules.namespace, namespace), *copies]


def _list_rights_of_copies(policy: model.FabricPolicy) -> Sequence[Permission]:
    mounts = [mount for fabric in policy.fabrics.values() for mount in fabric.mounts.config_maps if mount.namespace]
    rights = [Permission("get", "", "configmaps", name=mount.name, namespace=mount.namespace or "") for mount in mounts]
    for mount in mounts:
        verbs = ("list", "update", "delete")
        rights += [Permission(verb, "", "configmaps", name=mount.mounted_name) for verb in verbs]
        rights.append(Permission("create", "", "configmaps"))
    return list(dict.fromkeys(rights))


def _expand(rules: Sequence[_Rule], namespace: str) -> Iterator[Permission]:
    for rule in rules:
        for group in rule.api_groups:
            for resource, _, subresource in (item.partition("/") for item in rule.resources):
                for name in rule.resource_names:
                    installed = name.replace(_INSTALLATION, installed_names.INSTALLATION, 1)
                    for verb in rule.verbs:
                        yield Permission(verb, group, resource, subresource, installed, namespace)


@functools.cache
def _read_rules() -> Mapping[str, _Rules]:
    text_of_rules = importlib.resources.files("railwright.cli.checking").joinpath(FILE).read_bytes()
    return msgspec.json.decode(text_of_rules, type=dict[str, _Rules])


def format_user(namespace: str, account: str) -> str:
    """Return the user that a ServiceAccount is for the API server."""
    return f"system:serviceaccount:{namespace}:{account}"


def _check_servers(snapshot: Snapshot) -> Iterator[Assessment]:
    denied: Sequence[tuple[str, Sequence[Permission]]] = snapshot.get_all(SERVER_PERMISSIONS)
    if not denied:
        yield ok()
    for account, lacking in denied:
        yield fail(
            f"it lacks {text.format_count(len(lacking), 'permission')}: {text.join_first(map(str, lacking), 5)}",
            f"{_find_fix(lacking)}; to verify: kubectl auth can-i "
            f"{lacking[0]} --as={format_user(snapshot.namespace, account)}",
            subject=account,
        )


def _find_fix(lacking: Sequence[Permission]) -> str:
    """Return the fix of lacking permissions: the chart's value if all are those to copy ConfigMaps."""
    commands = [str(permission) for permission in lacking]
    if all(" configmaps" in command and installed_names.POLICY not in command for command in commands):
        return "add each of these ConfigMaps to webhook.copiedConfigMaps of the chart, as NAMESPACE/NAME"
    return f"apply the roles and their bindings again: {check_rows.APPLY}"


def _check_reading(snapshot: Snapshot) -> Assessment:
    if not snapshot.forbidden:
        return ok()
    return warn(
        f"you may not {', '.join(snapshot.forbidden)}; checks that need it are skipped",
        "ask a cluster administrator for these permissions (the ClusterRole view has most of them); to verify: "
        f"kubectl auth can-i {snapshot.forbidden[0]}",
    )


def _check_installing(snapshot: Snapshot) -> Assessment:
    answers: Sequence[tuple[Permission, bool | None]] = snapshot.get_all(PERMISSIONS)
    if denied := [f"create {permission.kind}" for permission, allowed in answers if allowed is False]:
        return fail(f"you may not {text.join_first(denied, 5)}")
    if not answers or not all(allowed for _, allowed in answers):
        return skip("the API server did not answer which permissions you have", unread=True)
    return ok()


CHECKS: check_rows.Checks = {
    "install-permissions": _check_installing,
    "server-permissions": _check_servers,
    "caller-permissions": _check_reading,
}
