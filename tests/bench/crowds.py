"""Generates a very large cluster to measure its memory: many small gangs, most of them running, some waiting.

Like `clusters`, but with names, uids and versions that are as long as real ones and all different: most of the memory
of a cached pod is such text, and equal texts would be stored once.
"""

import dataclasses
import re
import uuid
from collections.abc import Iterator

import clusters

TEAMS = 200  # namespaces
PODS_A_NODE = 4  # training pods of two GPUs and one rail on each node that runs any
RUNNING = 0.8  # of the nodes run training pods; as many more pods wait as there are nodes that run some
GANG = 64
_VERSION = re.compile(rb'"resourceVersion":"\d+"')
_SMALL = ('"nvidia.com/gpu":"8"', '"nvidia.com/gpu":"2"')
_PAD = {"name": "DATASET", "value": "s3://bucket/" + "a-path-of-the-usual-length/" * 30}  # up to 7 kB a pod
_RECORD = {
    "policy": "0123456789abcdef",
    "fabric": "roce",
    "role": "worker",
    "rails": "rail0",
    "changes": ["x" * 60] * 6,
}
_STATUS = "k8s.v1.cni.cncf.io/network-status"  # as Multus writes it
_ATTACHED = {
    "name": "scale/rail-0",
    "interface": "net1",
    "ips": ["192.168.12.34"],
    "mac": "0a:58:c0:a8:0c:22",
    "dns": {},
}


@dataclasses.dataclass(frozen=True)
class Size:
    """How many nodes and pods; a tenth to a fifth of the pods train, the others are services and daemons."""

    nodes: int
    pods: int

    @property
    def running(self) -> int:
        """Bound training pods."""
        return round(self.nodes * RUNNING) * PODS_A_NODE

    @property
    def waiting(self) -> int:
        """Training pods without a node."""
        return round(self.nodes * RUNNING)


class Crowd:
    """The objects of one size, by the paths they are listed at."""

    def __init__(self, size: Size) -> None:
        self.size = size
        self._cluster = clusters.Cluster(
            clusters.Shape(nodes=size.nodes, pods=0, taken=0.0, kube_gangs=0, volcano_gangs=())
        )
        self.names = self._cluster.names

    def nodes(self) -> Iterator[bytes]:
        """Return each node as JSON."""
        return self._cluster.nodes()

    def pods(self) -> Iterator[bytes]:
        """Yield each pod: the running gangs, the waiting ones, and all others."""
        running, waiting = self.size.running, self.size.waiting
        for number in range(running + waiting):
            on = self.names[number // PODS_A_NODE] if number < running else ""
            yield training_pod(*divmod(number, GANG), on=on)
        for number in range(self.size.pods - running - waiting):
            yield _pod(
                f"service-{number // 8}-7d4b9c6f5-{number:05}", number % TEAMS, on=self.names[number % len(self.names)]
            )

    def groups(self) -> Iterator[bytes]:
        """Volcano's PodGroup of each gang."""
        for gang in range(-(-(self.size.running + self.size.waiting) // GANG)):
            name = _gang(gang)
            tree = {"name": name, "namespace": _team(gang), "uid": _uid(name), "resourceVersion": "1"}
            yield clusters.compact({"metadata": tree, "spec": {"minMember": GANG}}).encode()

    def namespaces(self) -> Iterator[bytes]:
        """Yield each namespace."""
        for number in range(TEAMS):
            name = _team(number)
            labels = {"kubernetes.io/metadata.name": name}
            metadata = {"name": name, "uid": _uid(name), "resourceVersion": "1", "labels": labels}
            yield clusters.compact({"metadata": metadata}).encode()

    def networks(self) -> Iterator[bytes]:
        """Four NetworkAttachmentDefinitions of each namespace, and those of the policy."""
        for team in ("scale", *map(_team, range(TEAMS))):
            for rail, resource in enumerate(clusters.RAILS):
                metadata = {"name": f"rail-{rail}", "namespace": team, "uid": _uid(f"{team}-{rail}")}
                metadata["resourceVersion"] = "1"
                pool = {"k8s.v1.cni.cncf.io/resourceName": resource}
                yield clusters.compact({"metadata": {**metadata, "annotations": pool}}).encode()


def training_pod(gang: int, rank: int, *, on: str = "") -> bytes:
    """Return a pod of two GPUs and one rail in a gang of Volcano's."""
    return _pod(f"{_gang(gang)}-worker-{rank}", gang % TEAMS, group=_gang(gang), on=on, rail=rank % len(clusters.RAILS))


def set_version(obj: bytes, version: int) -> bytes:
    """Return the object as it is after another write."""
    return _VERSION.sub(b'"resourceVersion":"%09d"' % version, obj, count=1)


def _pod(name: str, team: int, *, group: str = "", on: str = "", rail: int = 0) -> bytes:
    text = clusters.pod(name, group=group, on=on, devices=bool(group)).decode()
    text = text.replace('"namespace":"train"', f'"namespace":"{_team(team)}"', 1)
    text = text.replace(f'"uid":"uid-{name}"', f'"uid":"{_uid(name)}"', 1)
    labels = {"app": name.rpartition("-")[0], "pod-template-hash": "7d4b9c6f5"}
    text = text.replace('"labels":{', f'"labels":{clusters.compact(labels)[:-1]}{"," if group else ""}', 1)
    if group:
        record = {"railwright.io/injection": clusters.compact(_RECORD), _STATUS: clusters.compact([_ATTACHED] * 2)}
        text = text.replace('"annotations":{', f'"annotations":{clusters.compact(record)[:-1]},', 1)
        text = text.replace(*_SMALL)
        for other, resource in enumerate(clusters.RAILS):
            if other != rail:
                text = text.replace(f',"{resource}":"1"', "")
    return text.replace('"env":[', f'"env":[{clusters.compact(_PAD)},', 1).encode()


def _gang(number: int) -> str:
    return f"pretrain-llm-{number:05}"


def _team(number: int) -> str:
    return f"team-research-{number % TEAMS:03}"


def _uid(name: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_URL, name))
