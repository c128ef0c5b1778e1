"""Imitates a scheduler's loop: places the pods of a gang one by one on the feasible node with the best score.

The decisions are the project's own. Feasible nodes are counted here, like a scheduler counts requests.
"""

from collections.abc import Callable, Mapping, Sequence

import placing
import small_clusters
from placing import (
    RememberingEngine,
    build_assumed_pod,
    build_cluster,
    build_pod_group,
    build_policy,
    build_request,
)

from railwright.fabric import node_views, resources, views
from railwright.fabric.placement import decisions
from railwright.fabric.placement.explain import diagnosis
from railwright.fabric.policy import model
from railwright.fabric.workloads import volcano

Pods = Sequence[views.Pod]
LEVELS = (placing.LEAF, placing.SPINE, "fabric.topograph.run/tier-2")
PRODUCT = "nvidia.com/gpu.product"


class Loop:
    """A cluster with one scheduler. Of nodes with equal scores, the first by name is chosen.

    Volcano announces the node of a pod; kube-scheduler (`announces` False) binds it at once.
    """

    def __init__(
        self,
        nodes: Sequence[node_views.Node],
        pods: Pods = (),
        given: model.Policy | None = None,
        *,
        announces: bool = True,
    ) -> None:
        self.state = build_cluster(nodes, pods)
        self.assumed = self.state.assumed
        self.policy = given or build_policy()
        self.announces = announces
        self.engine = RememberingEngine(self.state)

    def create(
        self, size: int, make: Callable[..., views.Pod] = placing.build_pod, *, group: str = "g", **options: object
    ) -> list[views.Pod]:
        """Create a gang of this size with its PodGroup. Return its pods by rank."""
        pods = gang(size, make, group=group, **options)
        self.submit(pods, group=group)
        return pods

    def submit(self, pods: Pods, *, group: str = "g") -> None:
        """Create the pods of a gang and its PodGroup."""
        self.state.sizes.upsert(volcano.POD_GROUPS, build_pod_group("train", group, len(pods)))
        for pod in pods:
            self.state.upsert_pod(pod)

    def feasible(self, pod: views.Pod) -> list[str]:
        """Return the nodes with room for the pod."""
        requests = resources.compute_requests(pod.spec).items()

        def has_room(free) -> bool:
            return all(free.get(resource, 0) >= amount for resource, amount in requests)

        return [name for name in self.state.nodes if has_room(self._free(name))]

    def decide(self, pod: views.Pod) -> decisions.Decision:
        """Return the scores for a pod without placing it."""
        return self.engine.score(build_request(pod, self.feasible(pod), self.policy))

    def explain_plan(self, pod: views.Pod) -> diagnosis.Diagnosis:
        """Explain the plan for a pod."""
        return self.engine.explain_plan(self.decide(pod))

    def place(self, pods: Pods) -> list[str]:
        """Place the pods in order. Return the node of each."""
        nodes = []
        for pod in pods:
            scores = self.decide(pod).scores
            best = min(scores, key=lambda name: (-scores[name], name))
            if self.announces:
                self.assumed.assume(build_assumed_pod(pod, best))
            else:
                self.state.upsert_pod(placing.change_pod(pod, spec={"node_name": best}))
            nodes.append(best)
        return nodes

    def leaf_of(self, node: str) -> str:
        """Return the value of the policy's first domain."""
        fabric = next(iter(self.policy.document.fabrics.values()))
        return self.state.nodes[node].labels[fabric.placement.domains[0]]

    def leaves(self, pods: Pods) -> list[str]:
        """Return the leaf of each pod, in the order given."""
        return [self.leaf_of(node) for node in self.place(pods)]

    def _free(self, name: str) -> Mapping[str, int]:
        free = dict(self.state.get_free(name))
        for assumed_pod in self.assumed.list_on_node(name):
            for resource, amount in assumed_pod.requests.items():
                free[resource] = free.get(resource, 0) - amount
        return free


def gang(size: int, make: Callable[..., views.Pod], *, group: str = "g", **options: object) -> list[views.Pod]:
    """Return the pods of a gang, by rank."""
    return [make(f"{group}-{rank}", group=group, **options) for rank in range(size)]


# --- small_clusters in the form of the loop ---------------------------------------------------------------------


def build_loop(
    cluster: small_clusters.Cluster, others: Sequence[tuple[int, small_clusters.Job]], *, announces: bool = True
) -> Loop:
    """Return the same cluster in the form of the loop."""
    nodes = []
    for host in cluster.hosts:
        labels = {PRODUCT: host.product, **dict(zip(LEVELS, host.chain, strict=False))}
        devices = {placing.RESOURCES[rail]: host.devices for rail in host.rails}
        nodes.append(placing.build_node(host.name, rails_each=devices, spine="", labels=labels))
    policy = placing.build_policy(
        domains=list(LEVELS[: len(cluster.ratios)]),
        oversubscription=list(cluster.ratios),
    )
    pods = [build_pod(job, f"other-{number}", on=cluster.hosts[at].name) for number, (at, job) in enumerate(others)]
    return Loop(nodes, pods, policy, announces=announces)


def build_pod(job: small_clusters.Job, name: str, *, group: str = "", on: str = ""):
    """Return a pod of a job; without requests for rails, its annotation has their number."""
    rails = placing.RESOURCES[: job.rails] if job.requests_devices else ()
    pod = placing.build_pod_with(name, {placing.GPU: str(job.gpus), **dict.fromkeys(rails, "1")}, group=group, on=on)
    annotations = {**pod.metadata.annotations, "railwright.io/rails": str(job.rails)}
    return placing.change_pod(pod, metadata={"annotations_or_none": annotations})


def place_gang(loop: Loop, cluster: small_clusters.Cluster, job: small_clusters.Job, group: str) -> list[int]:
    """Return the hosts of a gang, by rank."""
    pods = [build_pod(job, f"{group}-{rank}", group=group) for rank in range(job.pods)]
    loop.submit(pods, group=group)
    names = {host.name: index for index, host in enumerate(cluster.hosts)}
    return [names[name] for name in loop.place(pods)]
