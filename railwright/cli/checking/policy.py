"""Rows about the policy: there, valid, and named rightly by those who opt in."""

from collections.abc import Iterator

from railwright.cli.checking import model
from railwright.cli.checking import seen as sight
from railwright.cli.checking.installation import CREATE_POLICY
from railwright.cli.checking.model import Row, fail, ok, skip, warn
from railwright.cluster import policies
from railwright.fabric import names
from railwright.fabric.policy import selectors

_CONFIGMAP = f"ConfigMap {names.POLICY_CONFIGMAP}"
_EDIT = f"kubectl -n {names.NAMESPACE} edit configmap {names.POLICY_CONFIGMAP}"
_MOST = 20  # errors told; whoever has more mends these first


def _exists(seen: sight.Seen) -> model.Verdict:
    if seen.one("policy") is None:
        return fail(f"{_CONFIGMAP} does not exist in namespace {seen.namespace}")
    if seen.policy_text is None:
        keys = sight.listed(sight.dig(seen.one("policy"), "data") or ()) or "nothing"
        return fail(f"{_CONFIGMAP} has no key {names.POLICY_KEY}; it has {keys}", f"put the policy under it: {_EDIT}")
    return ok()


def _valid(seen: sight.Seen) -> model.Verdict:
    text = seen.policy_text
    result = sight.read_policy(text or "")
    if isinstance(result, policies.Rejected):
        return fail(
            "\n".join(_sentence(each) for each in result.errors[:_MOST]),
            f"{_EDIT}; to try one first: railwright policy validate FILE",
        )
    return ok(f"{sight.counted(len(result.document.fabrics), 'fabric')}: {sight.listed(result.document.fabrics)}")


def _sentence(error: policies.PolicyError) -> str:
    place = f"line {error.line}" if error.line is not None else ""
    return ": ".join(filter(None, (place, error.path, error.message)))


def _default(seen: sight.Seen) -> model.Verdict:
    if seen.policy is None:
        return skip("there is no policy")
    if seen.policy.default_fabric is None:
        return warn(f"none: the label {names.FABRIC}=default is refused; users have to name a fabric")
    return ok(seen.policy.default_fabric)


def _namespaces(seen: sight.Seen) -> model.Verdict:
    document = seen.policy
    if document is None:
        return skip("there is no policy")
    problems, count = [], 0
    for each in seen.all("namespaces"):
        labels = sight.dig(each, "metadata", "labels") or {}
        label = labels.get(names.FABRIC)
        if label is None or label == names.FABRIC_NONE:
            continue
        count += 1
        name = document.default_fabric if label == names.FABRIC_DEFAULT and label not in document.fabrics else label
        if name not in document.fabrics:
            problems.append(f"{sight.name_of(each)} asks for {label!r}, which is no fabric of the policy")
        elif not selectors.matches(document.fabrics[name].namespaces, labels):
            problems.append(f"{sight.name_of(each)} may not use fabric {name}: its labels do not match `namespaces`")
    if problems:
        return fail(f"{sight.listed(problems, 3)}: its pods with accelerators are refused")
    return ok(f"{sight.counted(count, 'namespace')} in all" if count else "no namespace opts in as a whole")


def rows() -> Iterator[Row]:
    """The group `policy`."""
    yield Row("policy-exists", "the policy's ConfigMap exists", _exists, CREATE_POLICY, ("policy",),
              ("namespace",))  # fmt: skip
    yield Row("policy-valid", "the policy is valid", _valid, _EDIT, ("policy",), ("policy-exists",))
    yield Row("default-fabric", "there is a default fabric", _default, f"set defaultFabric: {_EDIT}", ("policy",),
              ("policy-valid",))  # fmt: skip
    yield Row("namespace-labels", "namespaces that opt in name a fabric they may use", _namespaces,
              f"kubectl label namespace NAME {names.FABRIC}=FABRIC --overwrite", ("policy", "namespaces"),
              ("policy-valid",))  # fmt: skip
