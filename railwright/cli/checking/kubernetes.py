"""Rows about what has to be there before railwright: an API server, rights, Multus, accelerators, Volcano."""

import re
from collections.abc import Iterator

from railwright.cli.checking import model, nodes
from railwright.cli.checking import seen as sight
from railwright.cli.checking.model import Row, When, fail, ok, skip, warn

OLDEST = (1, 30)  # matchConditions and ValidatingAdmissionPolicy are stable since 1.30 (Kubernetes' feature gates)
INSTALLING: tuple[tuple[str, str, str], ...] = (  # verb, API group, resource: one of each kind the manifests hold
    ("create", "", "namespaces"),
    ("create", "", "serviceaccounts"),
    ("create", "", "configmaps"),
    ("create", "", "services"),
    ("create", "", "secrets"),
    ("create", "", "resourcequotas"),
    ("create", "apps", "deployments"),
    ("create", "coordination.k8s.io", "leases"),
    ("create", "networking.k8s.io", "networkpolicies"),
    ("create", "policy", "poddisruptionbudgets"),
    ("create", "rbac.authorization.k8s.io", "clusterroles"),
    ("create", "rbac.authorization.k8s.io", "clusterrolebindings"),
    ("create", "rbac.authorization.k8s.io", "roles"),
    ("create", "rbac.authorization.k8s.io", "rolebindings"),
    ("create", "admissionregistration.k8s.io", "mutatingwebhookconfigurations"),
    ("create", "admissionregistration.k8s.io", "validatingwebhookconfigurations"),
    ("create", "admissionregistration.k8s.io", "validatingadmissionpolicies"),
    ("create", "admissionregistration.k8s.io", "validatingadmissionpolicybindings"),
)


def right(verb: str, group: str, resource: str) -> str:
    """A right as `kubectl auth can-i` takes it."""
    return f"{verb} {resource}.{group}" if group else f"{verb} {resource}"


def _reachable(seen: sight.Seen) -> model.Verdict:
    if "version" in seen.unread:
        return fail(seen.unread["version"], unread=True)
    return ok(seen.server)


def _version(seen: sight.Seen) -> model.Verdict:
    told = sight.dig(seen.one("version"), "gitVersion") or ""
    found = re.match(r"v?(\d+)\.(\d+)", str(told))
    if found is None:
        return skip(f"the API server tells no version: {told!r}", unread=True)
    if (int(found[1]), int(found[2])) < OLDEST:
        return fail(f"{told} is older than {OLDEST[0]}.{OLDEST[1]}")
    return ok(str(told))


def _reading(seen: sight.Seen) -> model.Verdict:
    if seen.forbidden:
        return warn(
            f"you may not {sight.listed(seen.forbidden, 3)}; rows that need it are skipped",
            f"ask for the right, or run as one who has it; to see: kubectl auth can-i {seen.forbidden[0]}",
        )
    return ok()


def _installing(seen: sight.Seen) -> model.Verdict:
    wanted = [right(*each) for each in INSTALLING]
    lacking = [each for each in wanted if seen.may.get(each) is False]
    if lacking:
        return fail(f"you may not {sight.listed(lacking)}")
    if not all(seen.may.get(each) for each in wanted):
        return skip("the API server does not tell what you may", unread=True)
    return ok()


def _multus(seen: sight.Seen) -> model.Verdict:
    wants = [rail.network for fabric in seen.policy.fabrics.values() for rail in fabric.rails] if seen.policy else []
    if "networks" not in seen.unknown:
        return ok(sight.counted(len(seen.all("networks")), "network"))
    if any(wants):
        return fail("the API server knows no NetworkAttachmentDefinition, and the policy's rails have networks")
    if seen.policy is None:
        return warn("the API server knows no NetworkAttachmentDefinition; only rails without a network work so")
    return skip("not installed, and no rail of the policy has a network")


def _accelerators(seen: sight.Seen) -> model.Verdict:
    resources = nodes.accelerators(seen)
    having = nodes.accelerated(seen)
    if not having:
        return warn(f"none of {len(seen.all('nodes'))} nodes has any of {', '.join(resources)}")
    return ok(f"{len(having)} of {len(seen.all('nodes'))} nodes have {', '.join(resources)}")


def _pools(seen: sight.Seen) -> model.Verdict:
    accelerators = set(nodes.accelerators(seen))
    found: dict[str, int] = {}
    for node in seen.all("nodes"):
        for name in node.status.allocatable:
            if "/" in name and name not in accelerators:
                found[name] = found.get(name, 0) + (nodes.offered(node, name) > 0)
    if not found:
        return warn("no node offers an extended resource but accelerators; rails need one, or none and devInfiniband")
    return ok(sight.listed((f"{name} on {count}" for name, count in sorted(found.items())), 8))


def _volcano(seen: sight.Seen) -> model.Verdict:
    if "queues" in seen.unknown:
        return skip("not installed; gangs are then placed pod by pod by kube-scheduler")
    return ok(sight.counted(len(seen.all("queues")), "queue"))


def rows() -> Iterator[Row]:
    """The group `kubernetes`, but for what comes before an installation."""
    yield Row(
        "api-reachable",
        "the API server answers",
        _reachable,
        "give --kubeconfig or --context of a cluster you can reach; to see: kubectl version",
        when=When.ALWAYS,
    )
    yield Row(
        "api-version",
        f"Kubernetes is {OLDEST[0]}.{OLDEST[1]} or newer",
        _version,
        "upgrade the control plane: older ones ignore matchConditions and have no ValidatingAdmissionPolicy",
        reads=("version",),
        needs=("api-reachable",),
        when=When.ALWAYS,
    )
    yield Row(
        "caller-permissions",
        "you may read all that is looked at",
        _reading,
        "run as one who may, or ask for the right",
        needs=("api-reachable",),
        when=When.ALWAYS,
    )


def before() -> Iterator[Row]:
    """The group `before installing`."""
    yield Row(
        "install-permissions",
        "you may create what an installation consists of",
        _installing,
        "install as a cluster administrator: kubectl auth can-i create clusterroles",
        needs=("api-reachable",),
        when=When.BEFORE,
    )
    yield Row(
        "device-pools",
        "nodes offer device pools for rails",
        _pools,
        "install an RDMA or SR-IOV device plugin on the nodes; to see: kubectl describe node NODE",
        reads=("nodes",),
        needs=("api-reachable",),
        when=When.BEFORE,
    )
    yield Row(
        "volcano",
        "Volcano is there",
        _volcano,
        "kubectl get crd queues.scheduling.volcano.sh",
        reads=("queues",),
        needs=("api-reachable",),
        when=When.BEFORE,
    )


def parts() -> Iterator[Row]:
    """What of the cluster the policy rests on."""
    yield Row(
        "multus",
        "Multus's NetworkAttachmentDefinition is known",
        _multus,
        "install Multus (https://github.com/k8snetworkplumbingwg/multus-cni), or take `network` out of the rails",
        reads=("networks",),
        needs=("api-reachable",),
        when=When.ALWAYS,
    )
    yield Row(
        "accelerators",
        "nodes offer accelerators",
        _accelerators,
        "look at the GPU device plugin's pods, and at `accelerators` in the policy; to see: kubectl describe node NODE",
        reads=("nodes",),
        needs=("api-reachable",),
        when=When.ALWAYS,
    )
