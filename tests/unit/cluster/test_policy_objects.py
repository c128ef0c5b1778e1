"""The policy ConfigMap: its text is read whenever it changes."""

from railwright.cluster import policies, sources
from railwright.fabric import names, views

GOOD = (
    "apiVersion: railwright.io/v1alpha1\nfabrics:\n  ib:\n    transport: infiniband\n"
    "    rails: [{{name: rail0, resource: x.y/hca, device: {device}}}]\n"
)


def config_map(text: str) -> views.ConfigMap:
    metadata = views.ObjectMeta(name=names.POLICY_CONFIGMAP, namespace=names.NAMESPACE, uid="u")
    return views.ConfigMap(metadata=metadata, data={names.POLICY_KEY: text})


def test_missing_invalid_and_deleted_policies_are_reported_and_the_last_valid_one_stays():
    origin = sources.Sources(policies.PolicyStore(), None)
    origin.store.replace([])
    assert origin.find_policy_problem() == (
        "no valid policy yet: not found; create ConfigMap railwright-policy in namespace railwright-system with the"
        " key policy.yaml"
    )
    origin.store.replace([config_map(GOOD.format(device="mlx5_0"))])
    assert origin.find_policy_problem() == ""
    good = origin.store.current
    origin.store.upsert(config_map(GOOD.format(device="[a]")))
    assert (origin.store.current, origin.store.valid) == (good, False)
    assert "fabrics.ib.rails[0].device" in str(origin.store.errors[0])
    origin.store.remove(config_map(""))
    assert (origin.store.current, origin.store.valid) == (good, False)
    assert origin.store.errors[0].message == "the policy was deleted; create it again"
    assert origin.find_policy_problem() == "", "the last good one is in force"
    origin.store.upsert(config_map(GOOD.format(device="mlx5_1")))
    assert (origin.store.valid, origin.store.errors) == (True, ())
