"""POST /mutate/bindings: writes a pod's placement atomically with its node name. Never rejects.

Looks up the pod, the node and the claims of a Binding; `railwright.fabric.injection.binding` builds the annotations.
All data comes from caches. The caller waits briefly for a pod, or an allocation, that the caches do not have yet.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from railwright.fabric import views
from railwright.fabric.injection import binding, facts
from railwright.fabric.policy import model as policies
from railwright.fabric.reasons import reason, rendering
from railwright.fabric.reasons.codes import AdmissionCode
from railwright.fabric.workloads import frameworks
from webhook import extender_questions, patch, reviews, state

WAIT_SECONDS = 0.25  # a watch lags a Binding by milliseconds, and the scheduler waits for this answer
ALLOCATION_SECONDS = 1.0  # as above; without the devices NCCL does not start, and the API server waits for 2 s
_READER = reviews.Reader(reviews.Binding, "Binding")


def read(body: bytes) -> reviews.Request[reviews.Binding]:
    """Return the request of a review. Raises reviews.MalformedError."""
    return _READER.read(body)


def is_binding_to_node(request: reviews.Request[reviews.Binding]) -> bool:
    """True for the creation of a Binding whose target is a node."""
    target = request.object
    return request.operation == "CREATE" and target is not None and target.target.kind in {"", "Node"}


def get_pod(request: reviews.Request[reviews.Binding]) -> tuple[str, str, str]:
    """Return (namespace, name, uid) of the pod that is bound. The uid is "" if the scheduler does not send it."""
    metadata = request.object.metadata if request.object else views.ObjectMeta()
    name = metadata.name or request.name
    return (request.namespace or metadata.namespace, name, metadata.uid)


async def wait(
    request: reviews.Request[reviews.Binding],
    caches: state.State,
    extender: extender_questions.Extender | None = None,
) -> reason.Reason | None:
    """Wait until the caches have the pod, and the allocations of its claims, each for a limited time.

    Return the reason if the pod was placed without the extender, otherwise None.
    """
    bound = request.object
    if bound is None or not is_binding_to_node(request):
        return None
    key = get_pod(request)
    if not caches.pods.has_pod(*key):
        await caches.pods.wait(*key, seconds=WAIT_SECONDS)
    pending = caches.pods.find(*key)
    if pending is None:
        return None
    pod, node = pending.pod, caches.get_node(bound.target.name)
    problem = None if request.dry_run or extender is None else await extender.find_problem(pod)
    if not caches.devices.is_complete(pod, node):
        await caches.devices.wait(pod, node, ALLOCATION_SECONDS)
    return problem


def handle(
    request: reviews.Request[reviews.Binding],
    policy: policies.Policy | None,
    caches: state.State,
    problem: reason.Reason | None = None,
) -> reviews.Answer:
    """Answer a review from the caches without waiting. `problem` says why the extender did not place the pod."""
    bound = request.object
    if policy is None or bound is None or not is_binding_to_node(request):
        return reviews.allow(request)
    namespace, name, uid = get_pod(request)
    pending = caches.pods.find(namespace, name, uid)
    if pending is None:
        if caches.pods.has_pod(namespace, name, uid):
            return reviews.allow(request)
        unknown = reason.make(AdmissionCode.BOUND_POD_UNKNOWN, pod=f"{namespace}/{name}")
        return reviews.allow(request, rendering.describe_all([unknown]))
    node = caches.get_node(bound.target.name)
    claims = binding.Claims(
        caches.devices.list_allocated(pending.pod), caches.devices.list_unallocated(pending.pod, node)
    )
    cluster_facts = caches.build_facts(namespace)
    if node is None:
        missing = _explain_missing_node(bound.target.name, pending.pod, policy, cluster_facts, claims)
        return reviews.allow(request, rendering.describe_all([missing]))
    written = binding.bind(pending.pod, policy, cluster_facts, node, claims, problem)
    return reviews.allow(request) if written is None else _build_answer(request, bound, pending, written, problem)


def _build_answer(
    request: reviews.Request[reviews.Binding],
    bound: reviews.Binding,
    pending: state.Pending,
    written: binding.Binding,
    problem: reason.Reason | None,
) -> reviews.Answer:
    messages = rendering.describe_all(written.warnings)
    gang_messages = rendering.describe_all((problem,) if problem is not None else ())
    operations = (
        [
            *_remove_outdated(bound, pending, written.annotations),
            *patch.build_annotations(bound.metadata.annotations_or_none, written.annotations),
        ]
        if written.annotations
        else []
    )
    response = reviews.Response(operations=operations, warnings=(*messages, *gang_messages))
    events = tuple(_build_events(pending.pod, messages, gang_messages))
    return reviews.build_answer(request, response, events=events)


def _build_events(
    pod: views.Pod, messages: Sequence[rendering.Message], gang_messages: Sequence[rendering.Message]
) -> Iterator[reviews.EventRecord]:
    """Yield the records of Events on the pod and on its controller, because schedulers do not show warnings."""
    if messages:
        yield _build_event(pod, _refer_to(pod), messages)
    if gang_messages:
        yield build_gang_event(pod, gang_messages)


def build_gang_event(pod: views.Pod, messages: Sequence[rendering.Message]) -> reviews.EventRecord:
    """Return the record of Events on the pod's controller. A pod without one gets them itself."""
    return _build_event(pod, pod.metadata.controller or _refer_to(pod), messages)


def _build_event(
    pod: views.Pod, owner: views.OwnerReference, messages: Sequence[rendering.Message]
) -> reviews.EventRecord:
    lines = tuple(message.line for message in messages)
    return reviews.EventRecord(namespace=pod.metadata.namespace, owner=owner, rejected=False, messages=lines)


def _refer_to(pod: views.Pod) -> views.OwnerReference:
    return views.OwnerReference(api_version="v1", kind="Pod", name=pod.metadata.name, uid=pod.metadata.uid)


def _explain_missing_node(
    name: str, pod: views.Pod, policy: policies.Policy, cluster_facts: facts.ClusterFacts, claims: binding.Claims
) -> reason.Reason:
    """Return the warning for a pod that is bound to a node that is not in the cache."""
    if claims.devices or claims.unallocated:
        claim_names = tuple(dict.fromkeys([*(device.claim for device in claims.devices), *claims.unallocated]))
        return reason.make(AdmissionCode.ALLOCATION_UNKNOWN, claims=claim_names)
    awaits_devices = binding.awaits_devices(pod, policy, cluster_facts)
    code = AdmissionCode.BOUND_DEVICES_UNKNOWN if awaits_devices else AdmissionCode.BOUND_NODE_UNKNOWN
    return reason.make(code, node=name)


def _remove_outdated(
    bound: reviews.Binding, pending: state.Pending, annotations: Mapping[str, str]
) -> Iterator[Mapping[str, Any]]:
    """Yield operations that remove outdated annotations from a Binding.

    Volcano sends the annotations as they were when its session began, and the API server writes them to the pod.
    Without these operations, changes made since then would be lost.
    """
    sent = bound.metadata.annotations
    for key, values in pending.outdated.items():
        if (
            key not in annotations
            and sent.get(key) in values
            and sent[key] != pending.pod.metadata.annotations.get(key)
        ):
            yield {"op": "remove", "path": f"/metadata/annotations/{frameworks.escape(key)}"}
