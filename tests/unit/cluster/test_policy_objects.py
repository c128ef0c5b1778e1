"""The policy ConfigMap: its text is read whenever it changes."""

from extender import __main__ as extender_main
from railwright.cluster import policies, policy_errors, sources
from railwright.fabric import names, views
from webhook import __main__ as webhook_main

GOOD = (
    "apiVersion: railwright.io/v1alpha1\nfabrics:\n  ib:\n    transport: infiniband\n"
    "    rails: [{{name: rail0, resource: x.y/hca, device: {device}}}]\n"
)


def config_map(text: str) -> views.ConfigMap:
    metadata = views.ObjectMeta(name=names.POLICY_CONFIGMAP, namespace=names.NAMESPACE, uid="u")
    return views.ConfigMap(metadata=metadata, data={names.POLICY_KEY: text})


def test_missing_and_deleted_policies_are_reported_differently():
    origin = sources.Sources(policies.PolicyStore(), None)
    origin.store.replace([])
    assert origin.find_policy_problem() == (
        "no valid policy yet: not found; create ConfigMap railwright-policy in namespace railwright-system with the"
        " key policy.yaml"
    )
    origin.store.replace([config_map(GOOD.format(device="mlx5_0"))])
    assert origin.find_policy_problem() == ""
    origin.store.remove(config_map(""))
    assert origin.store.errors[0].message == "the policy was deleted; create it again"
    assert origin.find_policy_problem() == "", "the last good one is in force"


def test_servers_import_the_validator_of_invalid_policies_at_their_start():
    assert all(server._policy_errors is policy_errors for server in (extender_main, webhook_main))
