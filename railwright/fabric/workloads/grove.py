"""Grove's PodCliqueSet: the roles of an inference service, each a clique of equal pods.

A clique has the pod's labels and annotations beside its `spec.podSpec`, and Grove copies them to the pods
(ai-dynamo/grove at fcc3b3bb, operator/internal/controller/podclique/components/pod/pod.go, getLabels). The PodClique of
a role controls its pods. Cliques of a scaling group are scaled together, such as a leader and its workers.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from railwright.fabric import views
from railwright.fabric.workloads import frameworks

POD_SPEC = ("spec", "podSpec")  # of a clique
CLIQUES, SCALING_GROUPS = "/spec/template/cliques", "/spec/template/podCliqueScalingGroups"
_DEFAULT_PODS = 1  # operator/internal/webhook/admission/pcs/defaulting/podcliqueset.go


class TopologyLevel(views.View, frozen=True):
    """A level of domains: the name by which workloads refer to it, and the label of nodes."""

    domain: str = ""
    key: str = ""


class TopologySpec(views.View, frozen=True):
    """spec of a ClusterTopologyBinding, its widest level first."""

    levels: list[TopologyLevel] | None = None


class SchedulerTopology(views.View, frozen=True):
    """The topology of a scheduler, and whether it has the levels of the binding."""

    scheduler_name: str = ""
    in_sync: bool = False


class TopologyStatus(views.View, frozen=True):
    """status of a ClusterTopologyBinding."""

    scheduler_topology_statuses: list[SchedulerTopology] | None = None


class ClusterTopologyBinding(views.View, frozen=True):
    """The levels of domains that PodCliqueSets may name."""

    metadata: views.Identity = views.Identity()
    spec: TopologySpec = TopologySpec()
    status: TopologyStatus = TopologyStatus()

    def list_levels(self, scheduler: str) -> Mapping[str, str]:
        """Return the domain of each label, the widest level first; none unless the scheduler has the same levels."""
        topologies = self.status.scheduler_topology_statuses or ()
        if not any(topology.scheduler_name == scheduler and topology.in_sync for topology in topologies):
            return {}
        return {level.key: level.domain for level in self.spec.levels or ()}


def _create_pods(origin: frameworks.TemplateOrigin) -> Iterator[frameworks.CreatedPods]:
    """Yield the pods of a clique: SET-REPLICA-CLIQUE-..., in each replica of the set."""
    part = origin.context.name
    pods = frameworks.get_mapping(origin.ancestors[-1], "spec").get("replicas", _DEFAULT_PODS)
    sets = frameworks.get_mapping(origin.ancestors[0], "spec").get("replicas", 1)
    count = pods * sets if isinstance(pods, int) and isinstance(sets, int) else None
    yield frameworks.CreatedPods(f"clique {part}", count, f"-0-{part}-")


def _count_pods(path: Sequence[str | int], root: Mapping[str, Any]) -> int | None:
    """Return the pods of a clique in one replica of the set and of the scaling group."""
    node: Any = root
    for step in path:
        node = node[step]
    pods = frameworks.get_mapping(node, "spec").get("replicas", _DEFAULT_PODS)
    return pods if isinstance(pods, int) else None


def list_named(entries: Any) -> Iterator[tuple[str, frameworks.Tree]]:
    """Yield the entries of a list with their names."""
    for entry in entries if isinstance(entries, list) else ():
        name = frameworks.get_mapping(entry).get("name")
        if isinstance(name, str):
            yield name, entry


def _list_gangs(tree: Any) -> Mapping[str, str]:
    """Return the scaling group of each clique that has one. The others are gangs of their own."""
    template = frameworks.get_mapping(tree, "spec", "template")
    gangs = {name: _point(CLIQUES, name) for name, _ in list_named(template.get("cliques"))}
    for name, group in list_named(template.get("podCliqueScalingGroups")):
        members = group.get("cliqueNames")
        names = map(str, members if isinstance(members, list) else ())
        gangs |= dict.fromkeys(names, _point(SCALING_GROUPS, name))
    return gangs


def _point(entries: str, name: str) -> str:
    return f"{entries}/[{frameworks.escape(name)}]"


FRAMEWORK = frameworks.Framework(
    workload_kinds=(
        frameworks.WorkloadKind(
            "grove.io",
            "v1alpha1",
            "PodCliqueSet",
            (frameworks.TemplatePath(("spec", "template", "cliques", frameworks.EACH), pod_spec=POD_SPEC),),
            create_pods=_create_pods,
            count_pods=_count_pods,
            list_gangs=_list_gangs,
        ),
    ),
)


# --- Dynamo's DynamoGraphDeployment: the components of an inference service, each with a pod template ---------

# Its operator copies labels and annotations of a component's template to the pods, whether Grove or a Deployment
# creates them (ai-dynamo/dynamo, deploy/operator/internal/dynamo/graph.go and graph_test.go, as of November 2026).


def _create_component_pods(origin: frameworks.TemplateOrigin) -> Iterator[frameworks.CreatedPods]:
    """Yield the pods of a component; their number is unknown where each replica has several nodes (`multinode`)."""
    part = origin.context.name
    count = None if origin.parent.get("multinode") else origin.parent.get("replicas", 1)
    yield frameworks.CreatedPods(f"component {part}", count, f"-{part.lower()}-")


DYNAMO = frameworks.WorkloadKind(
    "nvidia.com",
    "v1beta1",
    "DynamoGraphDeployment",
    (frameworks.TemplatePath(("spec", "components", frameworks.EACH, "podTemplate")),),
    is_injected=False,
    create_pods=_create_component_pods,
)
