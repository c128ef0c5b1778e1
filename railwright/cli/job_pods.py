"""Reads the pods of the object that a command line names: a pod, a gang, or a workload such as a job."""

import argparse
import contextlib
import operator
import os
import re
from collections.abc import Sequence
from typing import Any
from urllib import parse

from railwright.cli import output
from railwright.cluster import client as clients
from railwright.cluster import errors, kubeconfigs, watch_wire
from railwright.fabric import names, views
from railwright.fabric.workloads import frameworks, kubernetes, membership, registry

_POD = ("pod", "pods", "po")  # as for kubectl
_JOBS = ("job", "jobs")
_GROUPS = ("job", "gang")  # of pods, whatever created them
# KIND/NAME or KIND.GROUP/NAME, as kubectl writes it
_OBJECT = re.compile(r"[a-z]+(?:\.[a-z0-9.-]+)?/[a-z0-9](?:[-a-z0-9]*[a-z0-9])?", re.ASCII)
_NAME = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?", re.ASCII)  # without a dot, which a manifest's name has
_VOLCANO_JOB = "Job.batch.volcano.sh"
# https://github.com/volcano-sh/volcano/issues/5973
_VOLCANO_NAMESAKES = (
    ". Volcano may create no pods of a job that replaces a deleted one of the same name (volcano issue 5973): if this "
    "job does, delete it and create it under a new name"
)
_SHORT_NAMES = {  # of kinds, as for kubectl
    "deploy": "Deployment.apps",
    "ds": "DaemonSet.apps",
    "lws": "LeaderWorkerSet.leaderworkerset.x-k8s.io",
    "rc": "ReplicationController.",
    "rs": "ReplicaSet.apps",
    "sts": "StatefulSet.apps",
    "vcjob": _VOLCANO_JOB,
    "vj": _VOLCANO_JOB,
}
_KINDS = {word: kind.name for kind in registry.KINDS for word in (kind.name.lower(), kind.plural)}
_JOB_KIND = next(kind for kind in registry.KINDS if (kind.group, kind.name) == ("batch", "Job"))
_WORDS = frozenset(_KINDS).union(_POD, _GROUPS, _SHORT_NAMES)
# Kinds whose controller creates other objects, and the kind of these: pods have their names
_CREATED = {"CronJob": "Job", "RayJob": "RayCluster", "RayService": "RayCluster", "PodCliqueSet": "PodClique"}

# reasons of Events about rejected pods: of railwright's webhook, and of controllers
_REJECTIONS = ("FabricRefused", "FailedCreate")

PENDING = "Pending"  # phase of a pod of which no container has started, except init containers
_NOT_PULLED = frozenset({"ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName"})


class _PodSpec(views.PodSpec, frozen=True):
    hostname: str = ""  # as its processes see that of the host


class _Condition(views.PodCondition, frozen=True):
    message: str | None = None


class _ContainerStatus(views.View, frozen=True):
    name: str = ""
    image: str = ""
    state: dict[str, Any] | None = None
    last_state: dict[str, Any] | None = None  # before it was restarted


class _PodStatus(views.PodStatus, frozen=True):
    conditions: list[_Condition] | None = None  # type: ignore[assignment]  # safe because frozen
    init_container_statuses: list[_ContainerStatus] | None = None
    start_time: str = ""  # kubelet has accepted the pod, RFC 3339


class Pod(views.Pod, frozen=True):
    """A pod with its host name, its conditions, and the states of its init containers."""

    spec: _PodSpec = _PodSpec()
    status: _PodStatus = _PodStatus()

    @property
    def preflight_failure(self) -> str:
        """Return why railwright's init container failed or has no image, also while it is retried; "" otherwise.

        The message is that of the preflight, otherwise its exit code.
        """
        status = self._preflight
        state = status.state or {}
        waiting = state.get("waiting") or {}
        if (reason := waiting.get("reason")) in _NOT_PULLED:
            cause = waiting.get("message") or reason
            return f"image {status.image} of init container {status.name} cannot be pulled: {cause}"
        ended = state.get("terminated") or (status.last_state or {}).get("terminated") or {}
        if not (code := ended.get("exitCode")):
            return ""
        default = f"init container {status.name} failed with exit code {code}, {ended.get('reason', '')}"
        return str(ended.get("message") or default).strip()

    @property
    def preflight_warning(self) -> str:
        """Return the message of railwright's init container if it has passed and warns; "" otherwise."""
        ended = (self._preflight.state or {}).get("terminated") or {}
        message = str(ended.get("message") or "").strip()
        return message if self.has_passed_preflight and "warning: " in message else ""

    @property
    def has_passed_preflight(self) -> bool:
        """True if railwright's init container has ended without a failure."""
        return ((self._preflight.state or {}).get("terminated") or {}).get("exitCode") == 0

    @property
    def _preflight(self) -> _ContainerStatus:
        statuses = self.status.init_container_statuses or ()
        return next((status for status in statuses if status.name == names.PREFLIGHT_CONTAINER), _ContainerStatus())


def parse_object(command: str, words: Sequence[str]) -> tuple[str, str] | None:
    """Return (kind, name) of the object that words name as KIND/NAME or KIND NAME; None if they name files.

    The kind is `pod`, `gang` or that of a workload. Raises UnreadableError for a kind whose objects have no pods, for a
    name without a kind, and for words after the object.
    """
    word, others = (words[0], words[1:]) if words else ("", ())
    if os.path.exists(word):  # noqa: PTH110 - as given
        return None
    kind, slash, name = word.partition("/")
    kind = kind.lower()
    base = kind.partition(".")[0]  # without the group
    if not slash and others and kind in _WORDS:  # KIND NAME, as for kubectl
        slash, name, others = "/", others[0], others[1:]
    if not slash and _NAME.fullmatch(word):
        raise output.UnreadableError(
            f"{word}: No such file or directory; for an object of the cluster give KIND/NAME, as job/NAME"
        )
    # names of pods and gangs may have parts
    if not slash or not (kind in _POD or (kind in _GROUPS and name) or _OBJECT.fullmatch(f"{kind}/{name}")):
        return None
    if others:
        raise output.UnreadableError(
            f"{command} {kind}/{name} {' '.join(others)}: give one object, as {kind}/NAME -n NAMESPACE"
        )
    if base not in _WORDS:
        raise output.UnreadableError(
            f"{command} {kind}/{name}: {base} is no kind of workload that railwright knows, and there is no such file; "
            f"give job/{name} for a job of any kind"
        )
    if created := _CREATED.get(_KINDS.get(base, "")):
        raise output.UnreadableError(
            f"{command} {kind}/{name}: a {_KINDS[base]} creates objects of kind {created}, which have the pods; give "
            "one of them as job/NAME"
        )
    return ("pod" if base in _POD else base, name)


def resolve_name(arguments: argparse.Namespace, kind: str, name: str) -> tuple[str, str]:
    """Return (namespace, name) of an object. The name of a pod may be NAMESPACE/NAME. Raise UnreadableError."""
    namespace = arguments.namespace
    if kind == "pod":
        first, slash, rest = name.partition("/")
        if not name or (slash and (not first or not rest or "/" in rest)):
            raise output.UnreadableError(f"{name!r} names no pod; give pod/NAME -n NAMESPACE")
        if slash and namespace not in ("", first):
            raise output.UnreadableError(f"pod {name}: -n {namespace} is another namespace; give one of them")
        namespace, name = (first, rest) if slash else (namespace, name)
    return namespace or kubeconfigs.find_namespace(arguments.kubeconfig, arguments.context), name


async def read_pod(client: clients.Client, namespace: str, name: str) -> Pod:
    """Return a pod. Raise ClusterError, and UnreadableError if the pod does not exist."""
    path = f"/api/v1/namespaces/{namespace}/pods/{parse.quote(name, safe='')}"
    pod = await watch_wire.find_object(client, path, Pod)
    if pod is None:
        raise output.UnreadableError(
            f"pod/{name} does not exist in namespace {namespace}. `kubectl get pods` shows what there is; -n NAMESPACE "
            "selects another namespace"
        )
    if pod.metadata.name != name:
        raise errors.build_foreign_error(client.host, path)
    return pod


async def find_pods(client: clients.Client, namespace: str, form: str, name: str) -> list[Pod]:
    """Return a pod, or the pods of a job or gang in order of rank, without ended ones that were replaced.

    Raises UnreadableError if there are none, and ClusterError.
    """
    path = f"/api/v1/namespaces/{namespace}/pods"
    if form == "pod":
        return [await read_pod(client, namespace, name)]
    pods: list[Pod] = await watch_wire.list_objects(client, path, Pod)
    named = [pod for pod in pods if _is_member(pod, namespace, name)]
    members = await _choose_members(client, namespace, form, name, named)
    if not members:
        raise output.UnreadableError(
            f"{form}/{name}: no pod in namespace {namespace} belongs to it; "
            f"{await _explain_absence(client, namespace, form, name)}"
        )
    return sorted(_drop_replaced(members), key=membership.find_rank)


def _drop_replaced(pods: Sequence[Pod]) -> list[Pod]:
    """Return the pods without ended ones that their Job has replaced by a pod with the same index.

    Until the new pod has passed its preflight, the newest replaced pod whose preflight failed is returned too: a Job
    that tries again would otherwise hide the failure. Pods are of one Job if their names are equal before the random
    suffix: each Job of a JobSet counts from 0.
    """
    of_index: dict[tuple[str, int | str], list[Pod]] = {}
    for pod in pods:
        rank = membership.find_rank(pod)
        key = (rank.name.rpartition("-")[0], rank.index) if rank.is_labelled else ("", rank.name)
        of_index.setdefault(key, []).append(pod)
    kept = []
    for same in of_index.values():
        living = [pod for pod in same if not pod.status.has_ended]
        failed = [pod for pod in same if pod.status.has_ended and pod.preflight_failure]
        if failed and living and all(pod.status.phase == PENDING and not pod.has_passed_preflight for pod in living):
            kept.append(max(failed, key=lambda pod: pod.metadata.creation_timestamp or ""))
        kept += living or same
    return kept


async def _choose_members(
    client: clients.Client, namespace: str, form: str, name: str, named: Sequence[Pod]
) -> Sequence[Pod]:
    """Return the pods of the object of kind `form` among `named`: a gang, a Job and a JobSet may share a name.

    Pods that are being deleted, as those of a replaced Job, are returned only if there are no others.
    """
    named = [pod for pod in named if pod.metadata.deletion_timestamp is None] or named
    if form == "gang":  # by the name in `railwright gangs`; a shorter one names all gangs of a job
        full_name = name.removeprefix(f"{namespace}/")
        return [pod for pod in named if membership.find_gang_name(pod, membership.find_gang(pod)) == full_name] or named
    if form not in _JOBS:
        return [pod for pod in named if not _is_of_job(pod, name)]
    of_job = [pod for pod in named if _is_of_job(pod, name)]
    if named and not of_job:  # job/NAME finds a job of any kind, unless a Job of this name has no pods, as if rejected
        with contextlib.suppress(errors.ClusterError):  # without the right to read it
            if (
                await watch_wire.find_object(client, build_workload_path(_JOB_KIND, namespace, name), dict[str, Any])
                is not None
            ):
                return []
    return of_job or named


def _is_of_job(pod: Pod, name: str) -> bool:
    """Return True if a Job of `batch` with this name has created the pod."""
    owner = pod.metadata.controller
    is_owned = (
        owner is not None and owner.api_version.startswith("batch/") and (owner.kind, owner.name) == ("Job", name)
    )
    return is_owned or pod.metadata.labels.get(kubernetes.JOB) == name


async def _explain_absence(client: clients.Client, namespace: str, form: str, name: str) -> str:
    """Return why a job or gang has no pods: the newest Event that rejects one, or the state of the workload.

    Return how to find the cause if neither is known.
    """
    last = name.rpartition("/")[2]
    query, events = {"fieldSelector": "type=Warning"}, []
    with contextlib.suppress(errors.ClusterError):  # many who may read pods may not read Events
        events = await watch_wire.list_objects(client, f"/api/v1/namespaces/{namespace}/events", views.Event, query)
    rejections = []
    for event in events:
        owner = event.involved_object.name  # such as Job NAME-workers-0 of a JobSet
        if event.reason in _REJECTIONS and f"{owner}-".startswith(f"{last}-"):
            rejections.append((owner == last, event.last_timestamp or event.event_time or "", event))
    if rejections:
        is_own, time, event = max(rejections, key=operator.itemgetter(0, 1))
        title = f"{event.involved_object.kind} {event.involved_object.name}"
        message = output.escape_controls(f"Event {event.reason} at {time} of {title}: {event.message}")
        other = (
            f"if {title} belongs to another job, the pods of yours may have been deleted, or -n NAMESPACE is missing"
        )
        return message if is_own else f"{message}; {output.escape_controls(other)}"
    if cause := await _describe_workload(client, namespace, form, last):
        return cause
    return (
        "check the name, or select another namespace with -n NAMESPACE. If its pods were rejected, an Event says why: "
        f"kubectl get events --field-selector type=Warning -n {namespace}. The pods of a finished job may have been "
        "deleted"
    )


def build_workload_path(kind: frameworks.WorkloadKind, namespace: str, name: str) -> str:
    """Return the path of a workload in the API server."""
    api = f"apis/{kind.group}" if kind.group else "api"
    return f"/{api}/{kind.version}/namespaces/{namespace}/{kind.plural}/{parse.quote(name, safe='')}"


async def _describe_workload(client: clients.Client, namespace: str, form: str, name: str) -> str:
    """Return why a workload of the kind `form` has no pods: it does not exist, is suspended, or has created none.

    Return "" if `form` is no kind, or if the caller may not read objects of this kind.
    """
    absent = []
    for kind in registry.KINDS:
        if _SHORT_NAMES.get(form) != kind.display_name and form not in (kind.name.lower(), kind.plural):
            continue  # Kubernetes and Volcano both have a kind Job
        try:
            workload = await watch_wire.find_object(client, build_workload_path(kind, namespace, name), dict[str, Any])
        except errors.ClusterError:  # without the right to read it, or the API server does not serve the kind
            continue
        title = kind.display_name.removesuffix(".")  # of the core group
        if workload is None:
            absent.append(title)
            continue
        spec = frameworks.get_mapping(workload, "spec")
        cause = "exists, but its controller has created no pod yet, or its pods were deleted after it finished"
        if spec.get("suspend") or frameworks.get_mapping(spec, "runPolicy").get("suspend"):
            cause = (
                "is suspended, so its controller creates no pods until a queue such as Kueue, or its author, resumes it"
            )
        elif spec.get("replicas") == 0:
            cause = "has replicas: 0, so its controller creates no pods"
        elif title == _VOLCANO_JOB:
            cause += _VOLCANO_NAMESAKES
        return f"{kind.name} {name} {cause}. To see why: kubectl describe {title.lower()} {name} -n {namespace}"
    if not absent:
        return ""
    return (
        f"there is no {' or '.join(dict.fromkeys(absent))} of this name. Check kind and name, or select another "
        "namespace with -n NAMESPACE"
    )


def _is_member(pod: Pod, namespace: str, name: str) -> bool:
    """Return True if the pod's gang, its controller, or the job that a label of its framework names has this name.

    The gang may be named in full, as `railwright gangs` shows it, or by one part of its name.
    """
    metadata = pod.metadata
    key = membership.find_gang(pod)
    gang = key.removeprefix(f"{namespace}/")
    owner = metadata.controller
    users_name = membership.find_gang_name(pod, key)
    named = {gang, *gang.split("/"), users_name, *membership.list_job_names(pod), owner.name if owner else ""}
    return bool(name) and name.removeprefix(f"{namespace}/") in named
