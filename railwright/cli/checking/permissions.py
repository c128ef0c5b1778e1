"""Rows about permissions: those of the servers by the roles in manifests/base, and those of the caller to read.

The API server decides (SubjectAccessReview); roles and bindings are not compared, because sites may grant permissions
differently.
"""

import importlib.resources
import itertools
import json
from collections.abc import Iterator, Mapping

from railwright.cli.checking import snapshots
from railwright.cli.checking.rows import Assessment, fail, ok, row, warn
from railwright.cli.checking.snapshots import CERTS, EXTENDER, NAMESPACE, WEBHOOK, Snapshot, find_named, get_path
from railwright.cluster import errors, installed_names
from railwright.cluster.errors import Permission
from railwright.fabric import text
from railwright.fabric.policy import shortcomings

GROUP = "permissions"


def list_accounts(snapshot: Snapshot) -> Mapping[str, str]:
    """Return the ServiceAccount of each server's Deployment."""
    deployments = {server: find_named(snapshot.peek("deployments"), server) for server in (CERTS, EXTENDER, WEBHOOK)}
    return {
        server: str(get_path(deployment, "spec", "template", "spec", "serviceAccountName") or "default")
        for server, deployment in deployments.items()
        if deployment is not None
    }


def list_permissions(server: str, snapshot: Snapshot) -> Iterator[Permission]:
    """Yield the permissions of a server in manifests/base and, for a policy with claims, in components/claims.

    Without an extender nobody needs its Secret. documentation/permissions.py writes the file with the rules of the
    roles.
    """
    has_claims = snapshot.policy is not None and snapshot.policy.needs_claim_templates
    absent = None if find_named(snapshot.peek("deployments"), EXTENDER) else snapshots.SECRETS[EXTENDER]
    content = importlib.resources.files("railwright.cli.checking").joinpath("permissions.json").read_text()
    for rule in json.loads(content.replace("{installation}", installed_names.INSTALLATION))[server]:
        if rule.get("claims") and not has_claims:
            continue
        namespace = NAMESPACE if rule["namespaced"] else ""
        for group, item, name in itertools.product(
            rule["apiGroups"], rule["resources"], rule.get("resourceNames", ("",))
        ):
            resource, _, subresource = item.partition("/")
            if name != absent:
                yield from (Permission(verb, group, resource, subresource, name, namespace) for verb in rule["verbs"])


@row("apply the roles and their bindings again: {apply}")
def check_server_permissions(snapshot: Snapshot) -> Assessment:
    """Servers have the permissions that they need.

    The API server is asked for each (SubjectAccessReview), so roles and bindings of your own count as well. A server
    that loses a permission goes on with what it has read before: pods are injected and placed by objects that have
    changed meanwhile, and nothing else fails at first. A webhook without those for ResourceClaimTemplates, which it
    needs for fabrics with `claims` or `nvlinkSegment` only, writes none: pods that name one stay Pending.
    """
    snapshot.require("server-permissions")
    if not snapshot.denied:
        return ok()
    lacking = (
        f"{account} lacks {text.format_count(len(denied), 'permission')}: {text.join_first(map(str, denied), 5)}"
        for account, denied in snapshot.denied.items()
    )
    account, (first, *_) = next(iter(snapshot.denied.items()))
    fix = "apply the roles and their bindings again: {apply}"
    denied = {(permission.verb, permission.resource) for permission in itertools.chain(*snapshot.denied.values())}
    if ("create", "resourceclaimtemplates") in denied:  # of the webhook alone; the extender reads by its own role
        fix = f"{shortcomings.GRANT_CLAIMS}: {{apply webhook.claims=true}}; if others are lacking too, {fix}"
    user = errors.format_user(NAMESPACE, account)
    return fail("; ".join(lacking), f"{fix}; to verify: kubectl auth can-i {first} --as={user}")


@row("ask a cluster administrator for the permissions", before=True)
def check_caller_permissions(snapshot: Snapshot) -> Assessment:
    """You have permission to read all checked objects.

    The detail lists the missing permissions; the fix has a command to verify the first one. Without them the exit code
    is 2, unless `--allow-unread` is given.
    """
    if not snapshot.forbidden:
        return ok()
    missing = sorted(snapshot.forbidden)
    return warn(
        f"you may not {text.join_first(missing, 5)}; checks that need these permissions are skipped",
        "ask a cluster administrator for these permissions (the ClusterRole view has most of them); to verify: "
        f"kubectl auth can-i {missing[0]}",
    )
