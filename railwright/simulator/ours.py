"""railwright beside a simulated scheduler: the real `railwright.fabric.placement.decide`, its fleet and its ledger.

Owns how a simulated cluster is told to them, as the extender's watches and events would. Decides nothing.
"""

import json
import time
from collections.abc import Sequence

from railwright.fabric import names, resources, views, workload
from railwright.fabric.placement import ask, decide, fleet, ledger, rails
from railwright.fabric.policy import presets
from railwright.fabric.workloads import volcano
from railwright.simulator import choosers, kubelet, reports, streams, world

_NAMESPACE = "train"
_DIGEST = "sha256:simulated"  # one policy for a whole run


class Railwright:
    """Our extender, as a policy of the simulation."""

    def __init__(self, on: world.World, *, announced: bool, reported: bool = True) -> None:
        self._on = on
        self._reported = reported  # kubelet's view of every node as a NodeResourceTopology, without delay
        self._announced = announced  # Volcano's events; kube-scheduler has none, bindings are seen
        self.fleet = fleet.Fleet()
        self.fleet.replace_nodes(on.site.nodes)
        self.ledger = ledger.Ledger(assume_seconds=float("inf"))
        self.scale = on.site.fabric.placement.scale
        self.seconds, self.decisions = 0.0, 0
        self._domains = presets.domains(on.site.fabric.placement)
        self._desk = decide.Desk(self.fleet, self.ledger)
        self._names = [host.name for host in on.hosts]
        self._pods: dict[int, list[views.Pod]] = {}
        if reported:
            on.watchers.append(self._changed)
        self._stale: dict[int, None] = {}  # hosts whose report is to be written
        self._needs: dict[int, tuple[resources.Amounts, tuple[rails.Need, ...]]] = {}

    def submitted(self, job: streams.Job) -> None:
        """The pods and their PodGroup appear."""
        self.fleet.upsert_pod_group(_pod_group(job))
        pods = self._pods[job.number] = [self._pod(job, rank) for rank in range(job.pods)]
        for pod in pods:
            self.fleet.upsert_pod(pod)

    def points(self, task: choosers.Task, offered: Sequence[int]) -> Sequence[float | None] | None:
        """The decision's scores."""
        started = time.process_time()
        points: list[float | None]
        question = self._ask(task, offered)
        kept = question.nodes if self._announced else self._desk.screen(question).kept  # Volcano's predicate is not set
        scores = self._desk.decide(question).scores
        points = [scores[name] for name in question.nodes]
        if len(kept) < len(points):
            fits = set(kept)
            points = [point if name in fits else None for name, point in zip(question.nodes, points, strict=True)]
        self.seconds += time.process_time() - started
        self.decisions += 1
        return points

    def placed(self, task: choosers.Task, host: int) -> None:
        """Volcano announces the pod; kube-scheduler binds it and the watch shows that."""
        pod = self._pods[task.job.number][task.rank]
        if not self._announced:
            self.fleet.upsert_pod(_bound(pod, self._on.hosts[host].name))
            self._report()
            return
        self.ledger.allocate(
            ledger.Entry(
                uid=pod.metadata.uid,
                key=f"{_NAMESPACE}/{pod.metadata.name}",
                gang=workload.gang_of(pod),
                rank=workload.rank_of(pod),
                node=self._on.hosts[host].name,
                requests=self._known(task.job, pod)[0],
                state=ledger.State.ALLOCATED,
                since=0.0,
            )
        )

    def undone(self, task: choosers.Task) -> None:
        """Volcano takes it back."""
        pod = self._pods[task.job.number][task.rank]
        if self._announced:
            self.ledger.deallocate(pod.metadata.uid)
        else:
            self.fleet.upsert_pod(pod)

    def bound(self, job: streams.Job, hosts: Sequence[int]) -> None:
        """The watch shows the gang bound."""
        if self._announced:
            for pod, host in zip(self._pods[job.number], hosts, strict=True):
                self.fleet.upsert_pod(_bound(pod, self._on.hosts[host].name))
                self.ledger.confirm(pod.metadata.uid)
        self._report()

    def ended(self, job: streams.Job) -> None:
        """The pods are gone."""
        for pod in self._pods.pop(job.number):
            self.fleet.remove_pod(pod.metadata.uid)
        self._report()
        self.fleet.remove_size(volcano.POD_GROUPS, _pod_group(job))

    def whole(self, job: streams.Job, free: world.Free) -> Sequence[int] | None:  # noqa: ARG002 - a protocol
        """The scheduler chooses."""
        return None

    def _changed(self, host: int, state: kubelet.State) -> None:
        del state  # the report is written when the pods are seen as well
        self._stale[host] = None

    def _report(self) -> None:
        for host in self._stale:
            self.fleet.upsert_topology(reports.of(self._on, host))
        self._stale.clear()

    def _ask(self, task: choosers.Task, offered: Sequence[int]) -> ask.Ask:
        pod, site = self._pods[task.job.number][task.rank], self._on.site
        requests, needs = self._known(task.job, pod)
        return ask.Ask(
            uid=pod.metadata.uid,
            namespace=_NAMESPACE,
            name=pod.metadata.name,
            spec=pod.spec,
            gang=workload.gang_of(pod),
            rank=workload.rank_of(pod),
            requests=requests,
            fabric_name=site.fabric_name,
            fabric=site.fabric,
            domains=self._domains,
            needs=needs,
            accelerators=site.policy.accelerators,
            nodes=[self._names[host] for host in offered],
            shapes=site.policy.node_shapes,
            policy=_DIGEST,
        )

    def _known(self, job: streams.Job, pod: views.Pod) -> tuple[resources.Amounts, tuple[rails.Need, ...]]:
        """(requests, needs) of a pod with so many GPUs."""
        found = self._needs.get(job.gpus)
        if found is None:
            requests = resources.requests_of(pod.spec)
            found = self._needs[job.gpus] = requests, rails.needs_of(pod, requests, self._on.site.fabric)
        return found

    def _pod(self, job: streams.Job, rank: int) -> views.Pod:
        """The pod as admission left it."""
        site, demand = self._on.site, self._on.demand(job.gpus)
        wanted: dict[str, views.Written] = {site.policy.accelerators[0]: job.gpus}
        chosen = site.fabric.rails[: demand.rails]
        if demand.counted:
            for rail in chosen:
                if rail.resource:
                    wanted[rail.resource] = int(wanted.get(rail.resource, 0)) + 1
        record = {"fabric": site.fabric_name, "rails": [rail.name for rail in chosen]}
        meta = views.ObjectMeta(
            name=f"{_group(job)}-worker-{rank}",
            namespace=_NAMESPACE,
            uid=f"{job.number}/{rank}",
            labels_or_none={names.FABRIC: site.fabric_name, volcano.TASK_INDEX: str(rank)},
            annotations_or_none={volcano.GROUP_ANNOTATION: _group(job), names.INJECTION: json.dumps(record)},
        )
        container = views.Container(name="main", resources=views.ResourceRequirements(requests_or_none=wanted))
        return views.Pod(metadata=meta, spec=views.PodSpec(containers_or_none=[container]))


def _bound(pod: views.Pod, node: str) -> views.Pod:
    spec = views.PodSpec(containers_or_none=pod.spec.containers_or_none, node_name=node)
    return views.Pod(metadata=pod.metadata, spec=spec, status=views.PodStatus(phase="Running"))


def _pod_group(job: streams.Job) -> views.PodGroup:
    meta = views.ObjectMeta(name=_group(job), namespace=_NAMESPACE)
    return views.PodGroup(metadata=meta, spec=views.PodGroupSpec(min_member=job.pods))


def _group(job: streams.Job) -> str:
    return f"job-{job.number}"
