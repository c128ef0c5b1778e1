"""Checks of pods and workloads: a dry run, missed and rejected pods, and keys without effect."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from railwright.cli import job_pods
from railwright.cli.checking import rows
from railwright.cli.checking.rows import Result, fail, ok, row, warn
from railwright.cli.checking.snapshots import WORKLOADS, SkipError, Snapshot, choose_dry_run_namespace, require_value
from railwright.cluster import errors
from railwright.cluster.installed_names import NAMESPACE, WEBHOOK
from railwright.fabric import intent, names, text, views
from railwright.fabric.injection import keys, opt_in, templates
from railwright.fabric.policy import model
from railwright.fabric.workloads.frameworks import get_list, get_mapping

GROUP = "pods"


_READ_LOG = f"kubectl -n {NAMESPACE} logs deployment/{WEBHOOK}"


@row(
    f"the detail is the API server's error; the webhook's log has more: {_READ_LOG}",
    each=lambda snapshot: {name: name for name in snapshot.require_policy().fabrics},
    after=f"replicas/{WEBHOOK} certificates/{WEBHOOK} ca-bundle webhook-entries policy rail-networks",
    heals=True,
)
def check_dry_run(snapshot: Snapshot, fabric: str) -> Result:
    """A dry-run pod gets its network, by the policy in force.

    For each fabric, an opted-in pod is created as a dry run and must come back with an injection record. Nothing is
    stored or scheduled. If a quota or a Pod Security level rejects it, use `--namespace-for-probe`. Not checked without
    permission to create pods.

    The injection record names the policy in the ConfigMap. A new policy takes effect within a second; if the record
    keeps naming another, a replica cannot watch the ConfigMap, or uses a `--policy` file.
    """
    namespace = choose_dry_run_namespace(snapshot, fabric)
    answer, place = snapshot.dry_runs[fabric], f"in namespace {namespace}"
    if isinstance(answer, errors.ApiError):
        if answer.status in (401, 403) and "is forbidden: User " in answer.message:
            raise SkipError(f"you may not create pods -n {namespace}; give --namespace-for-probe", unread=True)
        return fail(f"{place}: {answer.message}")
    if isinstance(answer, errors.ClusterError):
        return fail(f"{place}: {answer.sentence}")
    if not answer.metadata.annotations.get(names.INJECTION):
        if not _is_enforced(snapshot):
            raise SkipError(f"{place}: the policy is in mode warn, which adds no record")
        return fail(f"a pod {place} was admitted without a record: the API server did not call the webhook")
    expected = snapshot.policy_result.digest if isinstance(snapshot.policy_result, model.Policy) else ""
    digest = intent.read_record(answer).policy
    if digest == expected:
        return ok(f"{place}, by policy {expected[:15]}")
    return fail(
        f"the webhook uses {digest[:15] or 'an unknown policy'}, the ConfigMap has {expected[:15]}",
        f"a new policy takes effect within a second; if this persists, read the webhook's log: {_READ_LOG}",
    )


def _is_enforced(snapshot: Snapshot) -> bool:
    return snapshot.policy is None or snapshot.policy.is_enforced


_FIX_UNCOPIED = "do what each line says; if that does not replace the pods of the workload, create them again"


@row(
    "these pods use TCP: they were labelled after their creation, or were created while the webhook was not called or "
    "the policy was in mode warn; set the label in the pod template of their workload if the template lacks it. Once "
    "the rows above pass, delete the pods so that their controller creates them again: kubectl -n NAMESPACE delete "
    "pod NAME"
)
def check_uninjected(snapshot: Snapshot) -> Result:
    """Every opted-in pod has its network.

    Fails for opted-in pods that run or are pending without an injection. Not counted: mirror pods of static pods, pods
    that have finished or are being deleted, and pods of namespaces that the webhook's configuration excludes. Nor are
    pods with so many annotations (over 48,000 characters) that the record may not have fit.

    Also fails for workloads whose label did not reach their pods: a Job that existed before its label, or a workload
    that got its label while the webhook was not called or the policy was in mode `warn`.
    """
    labels = {item.metadata.name: item.metadata.labels for item in snapshot.get_objects("namespaces")}
    excluded, accelerators = snapshot.excluded_namespaces, snapshot.accelerators
    injected = sum(names.INJECTION in pod.metadata.annotations for pod in snapshot.live_pods)
    missing = [
        pod.metadata.full_name
        for pod in snapshot.live_pods
        if opt_in.find_label_of_uninjected_pod(pod, labels.get(pod.metadata.namespace), accelerators, excluded)
        is not None
    ]
    uncopied = []
    for workload in _read_user_workloads(snapshot):
        of_namespace = labels.get(workload.metadata.namespace)
        opted_in = {opt_in.find_label(template.pod, of_namespace, accelerators) for template in workload.templates}
        if opted_in != {workload.label} and (problem := keys.explain_uncopied_label(workload)):
            uncopied.append(f"{workload.kind.name} {workload.metadata.full_name}: {problem}")
    if _is_enforced(snapshot) and (missing or uncopied):  # otherwise the row policy says so
        share = f"{len(missing)} of {injected + len(missing)} were not injected: {text.join_first(missing, 5)}"
        return fail(_format_lines([*([share] if missing else ()), *uncopied]), "" if missing else _FIX_UNCOPIED)
    return ok(text.format_count(injected, "pod") if injected else "no pod has opted in")


@row("the Event says how to fix it; to list all: kubectl get events -A --field-selector reason=FabricRefused")
def check_refused(snapshot: Snapshot) -> Result:
    """No pod was rejected recently.

    Warns about Events of the last hour for rejected pods (reason `FabricRefused`); the detail quotes the newest. Events
    of owners that have got a pod since then, have been deleted, or want no pods do not count: with no replicas,
    suspended, finished, or a ReplicaSet of an earlier revision of its Deployment.
    """
    snapshot.require_sources("refusals")
    newest: dict[tuple[str, str, str], str] = {}  # owner -> creation time of its newest pod
    for pod in snapshot.get_objects("pods"):
        if controller := pod.metadata.controller:
            key = pod.metadata.namespace, controller.kind, controller.name
            newest[key] = max(newest.get(key, ""), pod.metadata.creation_timestamp or "")
    readable = {(kind.group, kind.name) for source, kind in WORKLOADS.items() if source not in snapshot.unread}
    existing = {tree["metadata"].get("uid"): tree for _, tree in snapshot.workloads}
    recent = []
    for event in snapshot.list_recent_events("refusals"):
        owner = event.involved_object
        is_readable = (owner.api_version.rpartition("/")[0], owner.kind) in readable
        wants_pods = _wants_pods(existing[owner.uid], existing) if owner.uid in existing else not is_readable
        has_newer_pod = newest.get((owner.namespace, owner.kind, owner.name), "") > (event.last_timestamp or "")
        if (wants_pods or not owner.uid) and not has_newer_pod:
            recent.append(event)
    if not recent:
        return ok("none in the last hour")
    owner, count = recent[0].involved_object, text.format_count(len(recent), "rejection")
    newest_rejection = f"{owner.kind} {owner.namespace}/{owner.name}: {recent[0].message}"
    return warn(f"{count} in the last hour, the newest of {newest_rejection}")


_REVISION = "deployment.kubernetes.io/revision"  # on a Deployment and its ReplicaSets


def _wants_pods(workload: Any, by_uid: Mapping[Any, Any]) -> bool:
    """False for a workload that has ended, has no replicas, is suspended, or belongs to an earlier revision."""
    spec = get_mapping(workload, "spec")
    is_suspended = spec.get("suspend") or get_mapping(spec, "runPolicy").get("suspend")
    if is_suspended or 0 in (spec.get("replicas"), spec.get("parallelism")) or _has_finished(workload):
        return False
    owners = [by_uid.get(owner["uid"]) for owner in get_list(workload, "metadata", "ownerReferences")]
    read = [workload, *filter(None, owners)]
    return len({get_mapping(item, "metadata", "annotations").get(_REVISION) for item in read}) == 1


def _list_preflight_pods(snapshot: Snapshot) -> Mapping[str, Sequence[job_pods.Pod]]:
    """Return the pods of each fabric that started with a preflight in the last hour, or whose preflight is retried."""
    policy = snapshot.require_policy()
    pods: dict[str, list[job_pods.Pod]] = defaultdict(list)
    for pod in snapshot.get_objects("pods"):
        if (
            any(container.name == names.PREFLIGHT_CONTAINER for container in pod.spec.init_containers or ())
            and pod.metadata.deletion_timestamp is None
            and (pod.status.start_time >= snapshot.hour_ago or (pod.preflight_failure and not pod.status.has_ended))
        ):
            pods[intent.find_fabric_name(pod, policy)].append(pod)
    return require_value(pods, "no pod has started with a preflight in the last hour")


_FIX_PREFLIGHT_WARNING = (
    "the message says what to correct on the node, in the rail's network, in the pod, or in the fabric "
    f"({rows.EDIT_POLICY}); pods that exist do not change, so create them again"
)


@row(
    "the message names the image or the rail. An image that cannot be pulled: name a Secret for its registry in "
    "imagePullSecrets of the pods or of their ServiceAccount, or another image in `preflight.image` of the fabric. A "
    f"rail that lacks something on the node: correct the fabric ({rows.EDIT_POLICY}) or the node; "
    "railwright explain pod/NAME -n NAMESPACE shows the node and the rails of a pod; then create the job again",
    each=_list_preflight_pods,
    after="policy",
)
def check_preflight(snapshot: Snapshot, pods: Sequence[job_pods.Pod]) -> Result:  # noqa: ARG001 - as for each row
    """Preflights pass without a warning.

    Reads, for each fabric, the pods that started in the last hour, and older ones whose preflight is retried or waits
    for its image. Fails if in all of them the init container `railwright-preflight` failed or its image cannot be
    pulled, and warns if in some. The detail quotes the newest failure. The preflight runs the webhook's image. If
    the registry requires a Secret, the webhook needs it in its own namespace, and the pods need it in theirs.

    Without a failure, warns if a preflight passed with a warning, and quotes the newest. With `onFailure: warn`, that
    is what would stop the pod otherwise. Other warnings are about what the policy does not state, such as the limit of
    locked memory.

    Pods that have succeeded are not read: until an hour has passed, only running pods show that preflights pass again.
    To leave out pods that failed or warned at once, delete them.
    """
    count = text.format_count(len(pods), "recent pod")
    if failed := [pod for pod in pods if pod.preflight_failure]:
        newest = max(failed, key=lambda pod: pod.status.start_time)
        assess = fail if len(failed) == len(pods) else warn
        return assess(
            f"{len(failed)} of {count} failed their preflight: {newest.preflight_failure} "
            f"(pod {newest.metadata.full_name})"
        )
    if warned := [pod for pod in pods if pod.preflight_warning]:
        newest = max(warned, key=lambda pod: pod.status.start_time)
        return warn(
            f"{len(warned)} of {count} passed their preflight with a warning: {newest.preflight_warning} "
            f"(pod {newest.metadata.full_name})",
            _FIX_PREFLIGHT_WARNING,
        )
    return ok(count)


def _describe_unknown_fabrics(
    snapshot: Snapshot, policy: model.PolicyDocument, workloads: Sequence[templates.Workload]
) -> Iterator[str]:
    """Yield a line for each fabric that the policy does not have, with the objects that name it."""
    users = defaultdict(list)
    by_namespace = {}  # fabrics that the labels of namespaces name
    for namespace in _list_labelled_namespaces(snapshot):
        label, name = namespace.metadata.labels[names.FABRIC], namespace.metadata.name
        by_namespace[name] = policy.resolve_fabric_name(label) or label
        users[by_namespace[name]].append(f"Namespace {name}")
    for workload in workloads:
        labels = [
            # the pods of an object whose templates are immutable have the label only if its template has it
            template.pod.metadata.labels.get(names.FABRIC) if workload.kind.is_frozen else template.label
            for template in workload.templates
        ]
        for label in {label for label in labels if label} - {names.FABRIC_NONE}:
            fabric = policy.resolve_fabric_name(label) or label
            users[fabric].append(f"{workload.kind.name} {workload.metadata.full_name}")
    for pod in snapshot.get_readable_objects("pods"):
        is_live = not pod.status.has_ended and pod.metadata.deletion_timestamp is None
        is_covered = pod.metadata.namespace not in snapshot.excluded_namespaces
        if is_live and is_covered and opt_in.MIRROR not in pod.metadata.annotations:
            fabric = intent.find_fabric_name(pod, policy)
            if names.FABRIC in pod.metadata.labels or by_namespace.get(pod.metadata.namespace) != fabric:
                users[fabric].append(f"Pod {pod.metadata.full_name}")
    for fabric in sorted(users.keys() - policy.fabrics.keys() - {""}):
        yield (
            f"the policy has no fabric {text.quote(fabric)}, named by {text.join_first(users[fabric], 5)}: their "
            "next pods are rejected, and the next update of a workload whose template lacks the label; define the "
            f"fabric ({rows.EDIT_POLICY}), or change the labels {names.FABRIC} that name it (that of a Namespace: "
            f"kubectl label namespace NAME {names.FABRIC}=FABRIC --overwrite)"
        )


def _list_labelled_namespaces(snapshot: Snapshot) -> list[views.Namespace]:
    """Return the namespaces whose label opts their pods in to a fabric."""
    return [
        namespace
        for namespace in snapshot.get_objects("namespaces")
        if namespace.metadata.labels.get(names.FABRIC, names.FABRIC_NONE) != names.FABRIC_NONE
        and namespace.metadata.name not in snapshot.excluded_namespaces
        and not namespace.metadata.deletion_timestamp
    ]


def _describe_excluded_namespaces(snapshot: Snapshot, policy: model.PolicyDocument) -> Iterator[str]:
    """Yield a line for each namespace whose label names a fabric that its pods may not use."""
    for namespace in _list_labelled_namespaces(snapshot):
        name, labels = namespace.metadata.name, namespace.metadata.labels
        fabric = policy.resolve_fabric_name(labels[names.FABRIC])
        if fabric in policy.fabrics and not policy.fabrics[fabric].allows_namespace(labels):
            yield (
                f"Namespace {name}: fabric {fabric} may not be used in it: its labels do not match the policy's "
                f"fabrics.{fabric}.namespaces, so the pods that its label {names.FABRIC} opts in are rejected; correct "
                f"`namespaces` ({rows.EDIT_POLICY}), or: kubectl label namespace {name} {names.FABRIC}=FABRIC "
                "--overwrite"
            )


_MAX_LINES = 10  # findings in the detail
_FINISHED = frozenset({"Complete", "Completed", "Failed", "Succeeded"})  # conditions of Jobs, JobSets, Kubeflow's jobs
_FINISHED_PHASES = frozenset({"Aborted", "Completed", "Failed", "Terminated"})  # of Volcano Jobs


def _has_finished(workload: Any) -> bool:
    """True for a job that has succeeded, failed or been aborted."""
    conditions = map(get_mapping, get_list(workload, "status", "conditions"))
    if any(item.get("type") in _FINISHED and item.get("status") == "True" for item in conditions):
        return True
    return get_mapping(workload, "status", "state").get("phase") in _FINISHED_PHASES


def _read_user_workloads(snapshot: Snapshot) -> Iterator[templates.Workload]:
    """Yield the workloads that users created in namespaces of the webhook and that have not finished."""
    for kind, tree in snapshot.workloads:
        try:
            workload = templates.read_workload(kind, tree)
        except templates.UnreadableError:
            continue  # its controller cannot read it either
        metadata = workload.metadata
        is_authored = not metadata.controller and not metadata.deletion_timestamp and not _has_finished(tree)
        if is_authored and metadata.namespace not in snapshot.excluded_namespaces:
            yield workload


def _format_lines(lines: Sequence[str]) -> str:
    """Return the first `_MAX_LINES` findings, a line each, and the number of the others."""
    more = [f"and {len(lines) - _MAX_LINES} more"] if len(lines) > _MAX_LINES else []
    return "\n".join([*lines[:_MAX_LINES], *more])


_FIX_MANIFEST = "each line says what to do in the manifest; pods that exist do not change, so create them again"


@row(_FIX_MANIFEST)
def check_workload_keys(snapshot: Snapshot) -> Result:
    """Labels and annotations of railwright have an effect where they are, and name fabrics of the policy.

    Examples without effect: the label on a CronJob, which passes no label to its pods; an annotation instead of a
    label; a misspelt key; a pod's key on a workload or on a namespace. Workloads of all kinds that railwright knows are
    read, but not those that a controller owns or that have ended. Labels that the webhook should have copied to the
    pods are in the row `uninjected`.

    Also warns about namespaces, workloads and pods that name a fabric which the policy lacks, or which has been
    removed or renamed: running pods keep their network, but the extender plans nothing for them, and pods that are
    created again are rejected. So are the pods of a namespace whose label names a fabric with `namespaces` that
    exclude it.
    """
    workloads = [*_read_user_workloads(snapshot)]
    lines = [
        f"Namespace {namespace.metadata.name}: {message.line}"
        for namespace in snapshot.get_objects("namespaces")
        if namespace.metadata.name not in snapshot.excluded_namespaces
        for message in keys.check_namespace(namespace.metadata)
    ]
    lines += [
        f"{workload.kind.name} {workload.metadata.full_name}: {message.line}"
        for workload in workloads
        for message in keys.check_stored_workload(workload)
    ]
    if snapshot.policy and snapshot.policy.is_enforced:
        lines = [
            *_describe_unknown_fabrics(snapshot, snapshot.policy, workloads),
            *_describe_excluded_namespaces(snapshot, snapshot.policy),
            *lines,
        ]
    if lines:
        return warn(_format_lines(lines))
    if unread := [snapshot.unread[source] for source in WORKLOADS if source in snapshot.unread]:
        raise SkipError("; ".join(dict.fromkeys(unread)), unread=True)
    return ok(text.format_count(len(snapshot.workloads), "workload"))
