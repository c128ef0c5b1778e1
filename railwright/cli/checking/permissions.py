"""Rows about permissions: of the caller, to install and to read, and of the servers, by the roles in manifests/base.

The API server is asked (SubjectAccessReview) instead of comparing roles and bindings: a site may grant the permissions
in its own way.
"""

import dataclasses
import functools
import importlib.resources
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from railwright.cli.checking import snapshots
from railwright.cli.checking.rows import Assessment, Phase, fail, ok, row, skip, warn
from railwright.cli.checking.snapshots import Snapshot, get_path
from railwright.cluster import installed_names
from railwright.cluster.errors import Permission
from railwright.fabric import text

GROUP = "permissions"


@functools.cache
def _read() -> Mapping[str, Sequence[Permission]]:
    """Return what each server needs by manifests/base, and what an installation creates under `install`.

    documentation/permissions.py writes the file. `{namespace}` stands for that of the installation.
    """
    content = importlib.resources.files("railwright.cli.checking").joinpath("permissions.json").read_text()
    named = content.replace("{installation}", installed_names.INSTALLATION)
    return msgspec.json.decode(named, type=dict[str, tuple[Permission, ...]])


TO_INSTALL = _read()["install"]


def list_accounts(snapshot: Snapshot) -> Mapping[str, str]:
    """Return the ServiceAccount of each server's Deployment."""
    deployments = {
        server: deployment
        for server in (snapshots.CERTS, snapshots.EXTENDER, snapshots.WEBHOOK)
        if (deployment := snapshot.find("deployments", server)) is not None
    }
    return {
        server: str(get_path(deployment, "spec", "template", "spec", "serviceAccountName") or "default")
        for server, deployment in deployments.items()
    }


def list_permissions(server: str, snapshot: Snapshot) -> Sequence[Permission]:
    """Return the permissions that a server needs. Without an extender nobody needs its Secret."""
    absent = None if snapshot.find("deployments", snapshots.EXTENDER) else snapshots.SECRETS[snapshots.EXTENDER]
    return [
        dataclasses.replace(item, namespace=item.namespace.format(namespace=snapshot.namespace))
        for item in _read()[server]
        if item.name != absent
    ]


def format_user(namespace: str, account: str) -> str:
    """Return the user that a ServiceAccount is for the API server."""
    return f"system:serviceaccount:{namespace}:{account}"


@row("install as a cluster administrator: kubectl auth can-i create clusterroles", phase=Phase.BEFORE)
def check_install_permissions(snapshot: Snapshot) -> Assessment:
    """You have permission to install.

    Only with `--pre`. You may create each kind of object in `manifests/base`, according to SelfSubjectAccessReview.
    Kubernetes lets you grant only roles whose permissions you hold, so in practice a cluster administrator installs.
    """
    answers: Sequence[tuple[Permission, bool | None]] = snapshot.get_all(snapshots.PERMISSIONS)
    if denied := [f"create {permission.kind}" for permission, allowed in answers if allowed is False]:
        return fail(f"you may not {text.join_first(denied, 5)}")
    if not answers or not all(allowed for _, allowed in answers):
        return skip("the API server did not answer which permissions you have", unread=True)
    return ok()


@row("apply the roles and their bindings again: {apply}", reads="server-permissions")
def check_server_permissions(snapshot: Snapshot) -> Iterator[Assessment]:
    """Servers have the permissions that they need.

    The API server is asked for each (SubjectAccessReview), so roles and bindings of your own count as well. A server
    that loses a permission goes on with what it has read before: pods are injected and placed by objects that have
    changed meanwhile, and nothing else fails at first.
    """
    denied: Sequence[tuple[str, Sequence[Permission]]] = snapshot.get_all(snapshots.SERVER_PERMISSIONS)
    if not denied:
        yield ok()
    for account, lacking in denied:
        yield fail(
            f"it lacks {text.format_count(len(lacking), 'permission')}: {text.join_first(map(str, lacking), 5)}",
            "apply the roles and their bindings again: {apply}; to verify: kubectl auth can-i "
            f"{lacking[0]} --as={format_user(snapshot.namespace, account)}",
            subject=account,
        )


@row("ask a cluster administrator for the permissions", phase=Phase.ALWAYS)
def check_caller_permissions(snapshot: Snapshot) -> Assessment:
    """You have permission to read all checked objects.

    The detail lists the missing permissions; the fix has a command to verify the first one. Without them the exit code
    is 2, unless `--allow-unread` is given.
    """
    if not snapshot.forbidden:
        return ok()
    return warn(
        f"you may not {text.join_first(snapshot.forbidden, 5)}; checks that need it are skipped",
        "ask a cluster administrator for these permissions (the ClusterRole view has most of them); to verify: "
        f"kubectl auth can-i {snapshot.forbidden[0]}",
    )
