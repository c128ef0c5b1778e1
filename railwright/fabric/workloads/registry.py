"""The frameworks that railwright knows, one row each, and their kinds.

To add one, write its file in this folder and its row here.
"""

from collections.abc import Sequence

from railwright.fabric.workloads import (
    apps,
    batch,
    frameworks,
    in_tree,
    jobset,
    kinds,
    kubeflow,
    leader_worker_set,
    ray,
    scheduler_plugins,
    volcano,
)

# A pod may show several frameworks. The order is that of docs/interface.md 7.1. Ray is first, because a Volcano Job may
# run a Ray cluster.
FRAMEWORKS: Sequence[frameworks.Framework] = (
    ray.FRAMEWORK,
    volcano.FRAMEWORK,
    scheduler_plugins.FRAMEWORK,
    in_tree.FRAMEWORK,
    kubeflow.FRAMEWORK,
    jobset.FRAMEWORK,
    leader_worker_set.FRAMEWORK,
    batch.FRAMEWORK,
    apps.FRAMEWORK,
)
KINDS: Sequence[kinds.WorkloadKind] = tuple(kind for framework in FRAMEWORKS for kind in framework.workload_kinds)
INJECTED_KINDS: Sequence[kinds.WorkloadKind] = tuple(kind for kind in KINDS if kind.is_injected)

_BY_VERSION = {(kind.group, version, kind.name): kind for kind in INJECTED_KINDS for version in kind.versions}
_BY_NAME = {(kind.group, kind.name): kind for kind in KINDS}  # the last row of a kind has its latest version


def find_injected(group: str, version: str, kind: str) -> kinds.WorkloadKind | None:
    """Return the kind, or None if railwright does not mutate its templates."""
    return _BY_VERSION.get((group, version, kind))


def find_kind(group: str, version: str, name: str) -> kinds.WorkloadKind | None:
    """Return the kind, or None if it is unknown. An unknown version is read as the latest one."""
    rows = [kind for kind in KINDS if (kind.group, kind.name) == (group, name) and version in kind.versions]
    return rows[0] if rows else _BY_NAME.get((group, name))
