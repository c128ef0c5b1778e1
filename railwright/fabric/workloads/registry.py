"""The frameworks that railwright knows, and their kinds of workloads.

To add a framework, write its file in this folder and add it to FRAMEWORKS.
"""

from collections.abc import Sequence

from railwright.fabric.workloads import (
    frameworks,
    grove,
    jobset,
    kubeflow,
    kubernetes,
    leader_worker_set,
    pod_groups,
    ray,
    volcano,
)

# A pod may show several frameworks. The order is that of docs/interface.md 7.1. Ray is first, because a Volcano Job may
# run a Ray cluster.
FRAMEWORKS: Sequence[frameworks.Framework] = (
    ray.FRAMEWORK,
    volcano.FRAMEWORK,
    pod_groups.FRAMEWORK,
    kubeflow.FRAMEWORK,
    jobset.FRAMEWORK,
    leader_worker_set.FRAMEWORK,
    grove.FRAMEWORK,
    kubernetes.FRAMEWORK,
)
KINDS: Sequence[frameworks.WorkloadKind] = tuple(kind for framework in FRAMEWORKS for kind in framework.workload_kinds)
# Objects from which another controller makes workloads or pods. Only files of these are read.
SOURCES: Sequence[frameworks.WorkloadKind] = (*jobset.RUNTIMES, grove.DYNAMO)
INJECTED_KINDS: Sequence[frameworks.WorkloadKind] = tuple(kind for kind in KINDS if kind.is_injected)

_BY_VERSION = {(kind.group, kind.version, kind.name): kind for kind in INJECTED_KINDS}
_BY_NAME = {
    (kind.group, kind.name): kind for kind in (*KINDS, *SOURCES)
}  # the last row of a kind has its latest version


def find_injected_kind(group: str, version: str, kind: str) -> frameworks.WorkloadKind | None:
    """Return a kind of workload, or None if railwright does not mutate its templates."""
    return _BY_VERSION.get((group, version, kind))


def find_kind(group: str, version: str, name: str) -> frameworks.WorkloadKind | None:
    """Return a kind of workload, or None if it is unknown. An unknown version is read as the latest one."""
    exact = (kind for kind in KINDS if (kind.group, kind.version, kind.name) == (group, version, name))
    return next(exact, _BY_NAME.get((group, name)))
