"""Permissions of the servers: which the API server is asked about."""

import yaml

from documentation import permissions as manifests
from railwright.cli.checking import permissions, snapshots
from railwright.fabric import names


def list_rights(account: str) -> set[str]:
    return {str(item) for item in permissions.list_permissions(account, names.NAMESPACE)}


def test_the_reviews_are_those_of_the_roles_in_the_manifests():
    roles = yaml.safe_load_all((manifests.markdown.ROOT / "manifests/base/webhook-rbac.yaml").read_text())
    (role,) = [role for role in roles if role["kind"] == "Role"]
    expected = {
        f"{verb} {resource.partition('/')[0]}{rule['apiGroups'][0] and '.' + rule['apiGroups'][0]}/railwright-policy"
        f"{' --subresource=status' if resource.endswith('/status') else ''} -n railwright-system"
        for rule in role["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert expected < list_rights("railwright-webhook")
    assert {"list nodes -A", "watch hypernodes.topology.volcano.sh -A"} < list_rights("railwright-extender")


def test_a_server_that_is_not_installed_needs_no_permission():
    deployment = {
        "metadata": {"name": "railwright-webhook"},
        "spec": {"template": {"spec": {"serviceAccountName": "hooks"}}},
    }
    snapshot = snapshots.Snapshot(names.NAMESPACE, None, objects={"deployments": (deployment,)})
    assert permissions.list_accounts(snapshot) == {"railwright-webhook": "hooks"}
