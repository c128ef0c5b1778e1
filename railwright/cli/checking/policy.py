"""Rows about the policy: its text, its mode, and the namespaces that opt in."""

from railwright.cli.checking import snapshots
from railwright.cli.checking.rows import Assessment, assess_problems, fail, ok, require_policy, row
from railwright.cli.checking.snapshots import Snapshot
from railwright.cluster import installed_names, policies
from railwright.fabric import intent, names, text

GROUP = "policy"

_CONFIGMAP = f"ConfigMap {installed_names.POLICY}"
_MOST = 20  # errors printed; a user with more fixes these first


@row(snapshots.CREATE_POLICY, reads="policy")
def check_policy(snapshot: Snapshot) -> Assessment:
    """Policy exists and is valid.

    A ConfigMap `railwright-policy` with the key `policy.yaml` exists. You create it; no installation method includes
    one. Without it no server becomes ready, and opted-in pods are rejected.

    The policy in it is valid. Errors have line and path, as in `railwright policy validate`. Servers never use an
    invalid policy: they keep the last valid one, which ConfigMap `railwright-last-policy` has for those that restart.
    """
    configmap, result = snapshot.get_one("policy"), snapshot.policy_result
    if configmap is None:
        return fail(f"{_CONFIGMAP} does not exist in namespace {snapshot.namespace}")
    if result is None:
        keys = text.join_first(configmap.get("data") or (), 5) or "nothing"
        missing = f"{_CONFIGMAP} has no key {names.POLICY_KEY}; it has {keys}"
        return fail(missing, "store the policy under this key: {edit policy}")
    if isinstance(result, policies.Rejected):
        validate = "{edit policy}; to validate it first: railwright policy validate FILE"
        return fail("\n".join(map(str, result.errors[:_MOST])), validate)
    fabrics = snapshot.fabrics
    return ok(f"{_CONFIGMAP}, {text.format_count(len(fabrics), 'fabric')}: {text.join_first(fabrics, 5)}")


@row("kubectl label namespace NAME railwright.io/fabric=FABRIC --overwrite", reads="policy namespaces", after="policy")
def check_namespace_labels(snapshot: Snapshot) -> Assessment:
    """Opted-in namespaces name a fabric they may use.

    Otherwise all their pods with accelerators are rejected.
    """
    policy = require_policy(snapshot).document
    problems, opted_in = [], 0
    for namespace, labels in snapshot.namespace_labels.items():
        label = labels.get(names.FABRIC)
        if label is None or label == names.FABRIC_NONE:
            continue
        opted_in += 1
        name = intent.resolve_default(label, policy)
        if not name:
            problems.append(f"{namespace} names {label!r}, but the policy has no defaultFabric")
        elif name not in policy.fabrics:
            problems.append(f"{namespace} names {label!r}, which is not a fabric of the policy")
        elif not policy.fabrics[name].allows_namespace(labels):
            problems.append(f"{namespace} may not use fabric {name}: its labels do not match `namespaces`")
    good = text.format_count(opted_in, "opted-in namespace") if opted_in else "no namespace opts in as a whole"
    known = text.join_first(policy.fabrics, 5)
    return assess_problems(problems, good, f"{{}}: its pods with accelerators are rejected; fabrics: {known}")
