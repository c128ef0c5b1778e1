"""Permissions of the servers: which the API server is asked about."""

import yaml
from admitting import fabric

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


def test_a_policy_that_has_config_maps_copied_needs_the_rights_of_the_webhook_only():
    mount = "{name: topo, namespace: vendor, mountPath: /a}"
    document = fabric(f"    mounts: {{configMaps: [{mount}, {{name: own, mountPath: /b}}]}}\n").document
    needed, usual = (
        {str(item) for item in permissions.list_permissions("railwright-webhook", names.NAMESPACE, policy)}
        for policy in (document, None)
    )
    assert needed - usual == {
        "get configmaps/topo -n vendor",
        "create configmaps -A",
        *(f"{verb} configmaps/railwright-topo -A" for verb in ("list", "update", "delete")),
    }
    assert permissions.list_permissions("railwright-extender", names.NAMESPACE, document) == (
        permissions.list_permissions("railwright-extender", names.NAMESPACE)
    )
