"""Defines the input and the output of an outlet, and finds which scheduler decides where the pods of a workload run."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from railwright.fabric import views
from railwright.fabric.gang_topology import requests
from railwright.fabric.injection import templates
from railwright.fabric.kueue import Queues
from railwright.fabric.reasons import reason
from railwright.fabric.reasons.codes import AdmissionCode
from railwright.fabric.workloads import frameworks


class ClusterFacts(msgspec.Struct, frozen=True):
    """Holds what outlets read of the cluster. None means that it is not known."""

    domains: requests.Domains | None = None
    list_tiers: Callable[[], Sequence[int]] = tuple  # of the HyperNodes that exist, ascending
    served: frozenset[str] | None = None  # of the API groups and versions that outlets name, those that are served
    kueue: Queues = Queues()
    kai_topologies: Mapping[str, Sequence[str]] | None = None  # labels of levels by name
    grove_topologies: Mapping[str, Mapping[str, str]] | None = None  # of KAI's: domain by label of a level, by name
    namespace: str = ""  # of the workload; its metadata lacks it in a manifest


class Context(msgspec.Struct, frozen=True):
    """Describes a workload that is being created, one of its gangs and the topology request for it."""

    workload: templates.Workload
    tree: Mapping[str, Any]  # the workload as plain data; fields that its API has not validated yet
    parts: tuple[requests.Part, ...]
    request: requests.TopologyRequest
    cluster: ClusterFacts
    gang: str = ""  # path of the part of the workload that is the gang; "" for all of it

    def get(self, *path: str) -> Any:
        """Return the value at a path of the workload, None if it has none."""
        node: Any = self.tree
        for step in path:
            node = node.get(step) if isinstance(node, dict) else None
        return node

    def refuse_owner(self, field: str) -> None:
        """Raise ReasonError for not writing `field` if another object controls the workload."""
        if owner := self.workload.metadata.controller:
            name = f"{owner.kind} {owner.name}"
            raise reason.ReasonError(AdmissionCode.TOPOLOGY_OF_OWNER, owner=name, field=field)

    def refuse_later_pods(self) -> None:
        """Raise ReasonError for not making the pods of a Job a gang if some of them start after others have ended.

        A gang of `parallelism` pods cannot start when fewer are left.
        """
        pods, completions = self.parts[0].pods, self.get("spec", "completions")
        if completions is not None and completions != pods:
            shown = str(completions)[:20]
            raise reason.ReasonError(AdmissionCode.TOPOLOGY_COMPLETIONS, completions=shown, pods=pods)


def point_to_annotation(key: str) -> str:
    """Return the JSON pointer of an annotation of the workload itself."""
    return f"/metadata/annotations/{frameworks.escape(key)}"


def find(tree: Any, path: str) -> tuple[str, Any]:
    """Return the JSON pointer and the value at a path of plain data. The value is None if there is none.

    A path is a JSON pointer in which `[NAME]` stands for the entry of a list with that name. Without such an entry the
    pointer is "".
    """
    pointer = ""
    for step in frameworks.split_pointer(path):
        if isinstance(tree, list):
            name = step[1:-1] if step == f"[{step[1:-1]}]" else ""
            names = [entry.get("name") if isinstance(entry, dict) else None for entry in tree]
            if not name or name not in names:
                return "", None
            index = names.index(name)
            tree, pointer = tree[index], f"{pointer}/{index}"
        else:
            tree = tree.get(step) if isinstance(tree, dict) else None
            pointer += f"/{frameworks.escape(step)}"
    return pointer, tree


class Writing(msgspec.Struct, frozen=True):
    """Holds a topology in the fields of one scheduler. `level` is the key that it names, "" for none."""

    level: str
    fields: Mapping[str, Any] = {}  # path in the workload, as of `find` -> value
    annotations: Mapping[str, Mapping[str, str]] = {}  # title of a template -> its annotations
    has_segments: bool = False  # each segment of the gang gets a domain of its own


# --- the scheduler ----------------------------------------------------------------------------------------

KUEUE, KUBE_SCHEDULER, VOLCANO, KAI = "Kueue", "kube-scheduler", "Volcano", "KAI"
QUEUE_NAME = "kueue.x-k8s.io/queue-name"  # label of a workload that Kueue admits
KAI_NAME = "kai-scheduler"  # in spec.schedulerName of pods
_BY_NAME = {"volcano": VOLCANO, KAI_NAME: KAI}  # by spec.schedulerName; others are profiles of kube-scheduler
_VOLCANO_JOB = "Job.batch.volcano.sh"  # its pods have Volcano as scheduler by default


def find_scheduler(workload: templates.Workload, pods: Iterable[views.Pod]) -> str:
    """Return the scheduler that decides the domain of a gang: Kueue before pods exist, otherwise that of its pods."""
    if QUEUE_NAME in workload.metadata.labels:
        return KUEUE
    names = {pod.spec.scheduler_name for pod in pods} - {""}
    if not names:
        return VOLCANO if workload.kind.display_name == _VOLCANO_JOB else KUBE_SCHEDULER
    return ", ".join(sorted({_BY_NAME.get(name, KUBE_SCHEDULER) for name in names}))
