"""Check that the ServiceAccounts of the servers have the permissions of their roles in manifests/base.

A server that loses a permission goes on with what it has read before, so nothing else fails at first. The API server is
asked (SubjectAccessReview) instead of comparing roles and bindings: a site may grant the permissions in its own way.
"""

import functools
import importlib.resources
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from railwright.cli.checking import check_rows
from railwright.cli.checking.check_rows import Assessment, fail, ok
from railwright.cli.checking.snapshots import Snapshot, get_path
from railwright.cluster import installed_names
from railwright.fabric import text

FILE = "server_permissions.json"  # written by documentation/permissions.py
_INSTALLATION = "railwright"  # first part of the names in FILE


class _Rule(msgspec.Struct, frozen=True, rename="camel"):
    """A rule of a Role or ClusterRole."""

    api_groups: tuple[str, ...]
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    resource_names: tuple[str, ...] = ("",)


class _Rules(msgspec.Struct, frozen=True):
    cluster: tuple[_Rule, ...] = ()
    namespace: tuple[_Rule, ...] = ()


class Permission(msgspec.Struct, frozen=True):
    """One permission, with the fields of the API's ResourceAttributes. `namespace` is "" for all namespaces."""

    verb: str
    group: str
    resource: str
    subresource: str
    name: str
    namespace: str

    def __str__(self) -> str:
        """Return the permission as arguments of `kubectl auth can-i`."""
        kind = f"{self.resource}.{self.group}" if self.group else self.resource
        target = f"{kind}/{self.name}" if self.name else kind
        scope = f"-n {self.namespace}" if self.namespace else "-A"
        return " ".join(
            filter(None, (self.verb, target, self.subresource and f"--subresource={self.subresource}", scope))
        )


def list_accounts(snapshot: Snapshot) -> Mapping[str, str]:
    """Return the ServiceAccount of each server's Deployment, by the server's name in FILE."""
    accounts = {}
    for server in _read_rules():
        deployment = snapshot.find("deployments", server.replace(_INSTALLATION, installed_names.INSTALLATION, 1))
        if deployment is not None:
            account = get_path(deployment, "spec", "template", "spec", "serviceAccountName")
            accounts[server] = str(account or "default")
    return accounts


def list_permissions(server: str, namespace: str) -> Sequence[Permission]:
    """Return the permissions that a server needs."""
    rules = _read_rules()[server]
    return [*_expand(rules.cluster, ""), *_expand(rules.namespace, namespace)]


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


def _check(snapshot: Snapshot) -> Iterator[Assessment]:
    if not snapshot.denied:
        yield ok()
    for account, permissions in snapshot.denied.items():
        user = f"system:serviceaccount:{snapshot.namespace}:{account}"
        yield fail(
            f"it lacks {text.format_count(len(permissions), 'permission')}: {text.join_first(permissions, 5)}",
            f"apply the roles and their bindings again: {check_rows.APPLY}; to verify: kubectl auth can-i "
            f"{permissions[0]} --as={user}",
            subject=account,
        )


CHECKS: check_rows.Checks = {"server-permissions": _check}
