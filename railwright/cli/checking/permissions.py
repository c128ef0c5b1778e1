"""Checks of permissions: of the caller, to install and to read, and of the servers, by the roles in manifests/base.

A server that loses a permission goes on with what it has read before, so nothing else fails at first. The API server is
asked (SubjectAccessReview) instead of comparing roles and bindings: a site may grant the permissions in its own way.
"""

import functools
import importlib.resources
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from railwright.cli.checking import check_rows, snapshots
from railwright.cli.checking.check_rows import Assessment, fail, ok, skip, warn
from railwright.cli.checking.snapshots import PERMISSIONS, SERVER_PERMISSIONS, Snapshot, get_path
from railwright.cluster import installed_names
from railwright.cluster.failures import Permission
from railwright.fabric import text


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
    accounts = {}
    for server in (snapshots.CERTS, snapshots.EXTENDER, snapshots.WEBHOOK):
        deployment = snapshot.find("deployments", server)
        if deployment is not None:
            account = get_path(deployment, "spec", "template", "spec", "serviceAccountName")
            accounts[server] = str(account or "default")
    return accounts


def list_permissions(server: str, namespace: str) -> Sequence[Permission]:
    """Return the permissions that a server needs."""
    return [
        msgspec.structs.replace(item, namespace=item.namespace.format(namespace=namespace)) for item in _read()[server]
    ]


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
            f"apply the roles and their bindings again: {check_rows.APPLY}; to verify: kubectl auth can-i "
            f"{lacking[0]} --as={format_user(snapshot.namespace, account)}",
            subject=account,
        )


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
