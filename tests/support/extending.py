"""The extender over some nodes, called as both schedulers call it, but without a server."""

import copy
import json
from collections.abc import Iterable, Sequence
from typing import Any

import admitting
import msgspec
import placing
from aiohttp import web

from extender import access, app, decider, gang_tracker, kube_scheduler, volcano
from extender import state as states
from railwright.cluster import events
from railwright.fabric import node_views, views
from railwright.fabric.overview import gang_assessment, overview_types
from railwright.fabric.policy import model
from railwright.fabric.workloads import volcano as volcano_workloads

# A task of Volcano and a node, as captured: the request of a predicate.
PREDICATE: dict[str, Any] = json.loads((admitting.WIRE / "volcano.json").read_bytes())
WAITING = msgspec.convert(PREDICATE["task"]["Pod"], views.Pod)  # the pod of the task
_PART = 256_000  # bytes that arrive together
ALLOCATED, PIPELINED = 2, 4  # status of a Volcano task
SOFT_SPREAD = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}
PREFERRING = {"topologySpreadConstraints": [SOFT_SPREAD]}  # filter leaves all feasible nodes to pods with preferences


class Poster(events.Events):
    """Stores the posted Events: object, whether it is a warning, reason and message."""

    def __init__(self) -> None:
        self.posted: list[tuple[events.InvolvedObject, bool, str, str]] = []

    def post(self, involved: events.InvolvedObject, *, warning: bool, reason: str, message: str) -> None:
        self.posted.append((involved, warning, reason, message))


class Extender:
    """A decider, and the handlers of kube-scheduler and Volcano on it."""

    def __init__(self, known: states.State, policy, *, count_rejected=lambda *_: None, **options) -> None:
        self.decider = decider.Decider(known, policy, count_rejected=count_rejected, **options)
        self.kube = kube_scheduler.KubeScheduler(self.decider)
        self.volcano = volcano.Volcano(self.decider)
        self.assessor = gang_assessment.Assessor(known.cluster, policy, known.pools, self.decider.engine)
        self.gangs = gang_tracker.GangTracker(known, self.assessor)

    def build_application(self, post: access.Post | None = None) -> web.Application:
        """Return the application with the paths of both schedulers and of explanations."""
        return app.build_application(self.decider, self.assessor, post, None, with_volcano=True)

    def find(self, verb: str):
        """Return the handler of a verb; those of Volcano begin with volcano_."""
        if verb == "volcano_prioritize":
            return self.prioritize
        is_volcano = verb.startswith("volcano_")
        return getattr(self.volcano if is_volcano else self.kube, verb.removeprefix("volcano_"))

    def prioritize(self, body: bytes) -> bytes:
        """Answer Volcano's prioritize, whose body is read while it arrives."""
        received = volcano.PrioritizeBody()
        for start in range(0, len(body), _PART):
            received.extend(body[start : start + _PART])
        return self.volcano.prioritize(received)


class Site:
    """An extender over some nodes and pods, with a policy and a clock that the test sets."""

    def __init__(
        self,
        nodes: Iterable[node_views.Node],
        pods: Iterable[views.Pod] = (),
        policy: model.Policy | None = None,
        *,
        now: float = 100.0,
        **options: Any,
    ) -> None:
        self.now, self.policy = now, policy or placing.build_policy(domains=[placing.LEAF])
        self.state = states.State(clock=lambda: self.now)
        self.pods = states.PodSink(self.state)
        self.state.cluster.replace_nodes(list(nodes))
        self.names = list(self.state.cluster.nodes)
        for known in pods:
            self.pods.upsert(known)
        self.verbs = Extender(self.state, lambda: self.policy, clock=lambda: self.now, **options)
        self.gangs = self.verbs.gangs

    def add_gang(self, pods: Sequence[views.Pod], group: str) -> None:
        """Create the pods of a gang and Volcano's PodGroup."""
        self.state.cluster.sizes.upsert(
            volcano_workloads.POD_GROUPS, placing.build_pod_group("train", group, len(pods))
        )
        for peer in pods:
            self.pods.upsert(peer)

    def ask_kube(self, verb: str, body: object) -> Any:
        """Return the answer to a request of kube-scheduler."""
        return json.loads(getattr(self.verbs.kube, verb)(json.dumps(body).encode()))

    def filter(self, pod: views.Pod, names: Sequence[str] | None = None, **spec: Any) -> list[str]:
        """Return the nodes that filter returns; all nodes are candidates by default."""
        return json.loads(self.verbs.kube.filter(build_body(pod, self.names if names is None else names, **spec)))[
            "NodeNames"
        ]

    def score(self, pod: views.Pod, names: Sequence[str] | None = None) -> dict[str, int]:
        """Return the integers that prioritize returns."""
        body = build_body(pod, self.names if names is None else names)
        return {row["Host"]: row["Score"] for row in json.loads(self.verbs.kube.prioritize(body))}

    def ask_volcano(self, verb: str, body: object, scope: str = "") -> dict[str, Any]:
        """Return the answer to a request of Volcano."""
        arguments = (scope,) if verb in ("allocate", "close_session") else ()
        return json.loads(self.verbs.find(f"volcano_{verb}")(json.dumps(body).encode(), *arguments))

    def allocate(self, pod: views.Pod, on: str, scope: str = "", **fields: Any) -> str:
        """Announce a pod as Volcano does. Return the message of a rejection, or ""."""
        task = {**build_task(pod), "NodeName": on, "Status": ALLOCATED, **fields}
        return self.ask_volcano("allocate", {"task": task}, scope)["errorMessage"]

    def close(self, scope: str = "") -> None:
        """End a session of Volcano."""
        self.verbs.volcano.close_session(b"{}", scope)

    def explain(self, name: str) -> overview_types.Explanation | str:
        """Explain a pod as it is now, or return why not."""
        return app.explain_pod(f"train/{name}", self.verbs.assessor)


def build_body(pod: views.Pod, names: Sequence[str], **spec: Any) -> bytes:
    """Return a request of kube-scheduler, without spaces as from Go; `spec` are further fields of the pod's spec."""
    return msgspec.json.encode({"Pod": build_tree(pod, **spec), "Nodes": None, "NodeNames": list(names)})


def build_tree(pod: views.Pod, **spec: Any) -> dict[str, Any]:
    """Return a pod as kube-scheduler sends it."""
    tree = msgspec.to_builtins(pod)
    tree["spec"] |= spec
    return tree


def build_task(pod: views.Pod) -> dict[str, Any]:
    """Return a pod as Volcano's task."""
    tree = msgspec.to_builtins(pod)
    requests = tree["spec"]["containers"][0]["resources"]["requests"]
    group = tree["metadata"]["annotations"].get("scheduling.k8s.io/group-name", "")
    return {
        "UID": pod.metadata.uid,
        "Job": f"train/{group}" if group else "",
        "Name": pod.metadata.name,
        "Namespace": pod.metadata.namespace,
        "InitResreq": {"ScalarResources": {name: int(amount) * 1000 for name, amount in requests.items()}},
        "Pod": tree,
    }


def build_prioritize(*names: str) -> dict[str, Any]:
    """Return Volcano's request about the captured task, with the captured node under each of these names."""
    nodes = [json.loads(json.dumps(PREDICATE["node"]).replace('"gpu-0"', f'"{name}"')) for name in names]
    return {"task": copy.deepcopy(PREDICATE["task"]), "nodes": nodes}


def build_event(node: str) -> dict[str, Any]:
    """Return Volcano's event that it has allocated the captured task to a node."""
    task = copy.deepcopy(PREDICATE["task"]) | {"NodeName": node, "Status": ALLOCATED}
    task["Pod"]["spec"]["nodeName"] = node
    return {"task": task}
