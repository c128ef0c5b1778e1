"""Checks of the policy: it exists, is valid, and opted-in namespaces name its fabrics."""

from collections.abc import Iterator

from railwright.cli.checking import check_rows, snapshots
from railwright.cli.checking.check_rows import Row, fail, ok, skip, warn
from railwright.cli.checking.installation import CREATE_POLICY
from railwright.cluster import policies
from railwright.fabric import intent, names
from railwright.fabric.policy import selectors

_CONFIGMAP = f"ConfigMap {names.POLICY_CONFIGMAP}"
_EDIT = f"kubectl -n {names.NAMESPACE} edit configmap {names.POLICY_CONFIGMAP}"
_MOST = 20  # errors printed; a user with more fixes these first


def _check_exists(snapshot: snapshots.ClusterSnapshot) -> check_rows.Assessment:
    if snapshot.one("policy") is None:
        return fail(f"{_CONFIGMAP} does not exist in namespace {snapshot.namespace}")
    if snapshot.policy_text is None:
        keys = snapshots.join_limited(snapshots.get_path(snapshot.one("policy"), "data") or ()) or "nothing"
        return fail(
            f"{_CONFIGMAP} has no key {names.POLICY_KEY}; it has {keys}", f"store the policy under this key: {_EDIT}"
        )
    return ok()


def _check_valid(snapshot: snapshots.ClusterSnapshot) -> check_rows.Assessment:
    text = snapshot.policy_text
    result = snapshots.read_policy(text or "")
    if isinstance(result, policies.Rejected):
        return fail(
            "\n".join(map(str, result.errors[:_MOST])),
            f"{_EDIT}; to validate it first: railwright policy validate FILE",
        )
    return ok(
        f"{snapshots.format_count(len(result.document.fabrics), 'fabric')}: "
        f"{snapshots.join_limited(result.document.fabrics)}"
    )


def _check_default(snapshot: snapshots.ClusterSnapshot) -> check_rows.Assessment:
    if snapshot.policy is None:
        return skip("there is no valid policy")
    if snapshot.policy.default_fabric is None:
        return warn(f"none: the label {names.FABRIC}=default is rejected; users must name a fabric")
    return ok(snapshot.policy.default_fabric)


def _check_namespaces(snapshot: snapshots.ClusterSnapshot) -> check_rows.Assessment:
    document = snapshot.policy
    if document is None:
        return skip("there is no valid policy")
    problems, count = [], 0
    for namespace in snapshot.all("namespaces"):
        labels = snapshots.get_path(namespace, "metadata", "labels") or {}
        label = labels.get(names.FABRIC)
        if label is None or label == names.FABRIC_NONE:
            continue
        count += 1
        name = intent.resolve_default(label, document)
        if name not in document.fabrics:
            problems.append(f"{snapshots.get_name(namespace)} names {label!r}, which is not a fabric of the policy")
        elif not selectors.matches(document.fabrics[name].namespaces, labels):
            problems.append(
                f"{snapshots.get_name(namespace)} may not use fabric {name}: its labels do not match `namespaces`"
            )
    if problems:
        return fail(f"{snapshots.join_limited(problems, 3)}: its pods with accelerators are rejected")
    return ok(snapshots.format_count(count, "opted-in namespace") if count else "no namespace opts in as a whole")


def list_rows() -> Iterator[Row]:
    """Yield the checks of the group `policy`."""
    yield Row(
        anchor="policy-exists",
        name="policy ConfigMap exists",
        assess=_check_exists,
        hint=CREATE_POLICY,
        reads=("policy",),
        depends_on=("namespace",),
    )
    yield Row(
        anchor="policy-valid",
        name="policy is valid",
        assess=_check_valid,
        hint=_EDIT,
        reads=("policy",),
        depends_on=("policy-exists",),
    )
    yield Row(
        anchor="default-fabric",
        name="policy has a default fabric",
        assess=_check_default,
        hint=f"set defaultFabric: {_EDIT}",
        reads=("policy",),
        depends_on=("policy-valid",),
    )
    yield Row(
        anchor="namespace-labels",
        name="opted-in namespaces name a fabric they may use",
        assess=_check_namespaces,
        hint=f"kubectl label namespace NAME {names.FABRIC}=FABRIC --overwrite",
        reads=("policy", "namespaces"),
        depends_on=("policy-valid",),
    )
