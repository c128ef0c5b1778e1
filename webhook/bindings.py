"""POST /mutate/bindings: where a pod landed, written atomically with its node name. Never refuses.

Owns the lookups by the Binding's words; what is written is `railwright.fabric.injection.binding`'s. Everything comes
from caches: a pod that is not in them yet is waited for shortly, by the caller.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from railwright.fabric import names, views
from railwright.fabric.injection import binding, facts
from railwright.fabric.policy import model as policies
from webhook import answer, patch, state, wire

WAIT_SECONDS = 0.25  # a watch is behind a Binding by milliseconds; the scheduler waits for this answer
_READER = wire.Reader(wire.Binding, "Binding")


def read(body: bytes) -> wire.Request[wire.Binding]:
    """The request of a review. Raises wire.MalformedError."""
    return _READER.read(body)


def concerns_us(request: wire.Request[wire.Binding]) -> bool:
    """True for the creation of a Binding to a node."""
    bound = request.object
    return request.operation == "CREATE" and bound is not None and bound.target.kind in {"", "Node"}


def pod_of(request: wire.Request[wire.Binding]) -> tuple[str, str, str]:
    """Namespace, name and uid ("" if the scheduler gives none) of the pod that is bound."""
    metadata = request.object.metadata if request.object else views.ObjectMeta()
    name = metadata.name or request.name
    return (request.namespace or metadata.namespace, name, metadata.uid)


def handle(request: wire.Request[wire.Binding], policy: policies.Policy | None, known: state.State) -> answer.Answer:
    """The answer, out of the caches as they are."""
    bound = request.object
    if policy is None or bound is None or not concerns_us(request):
        return _answer(request, ())
    namespace, name, uid = pod_of(request)
    pending = known.pods.find(namespace, name, uid)
    if pending is None:
        if known.pods.knows(namespace, name, uid):
            return _answer(request, ())
        told = f"pod {namespace}/{name} is not known to railwright yet: annotation {names.PLACEMENT} is not written"
        return _answer(request, (told,))
    return _placed(request, bound, pending, policy, known.facts(namespace), known.node(bound.target.name))


def _placed(  # noqa: PLR0913, PLR0917 - the six things a placement follows from
    request: wire.Request[wire.Binding],
    bound: wire.Binding,
    pending: state.Pending,
    policy: policies.Policy,
    known: facts.Facts,
    node: views.Node | None,
) -> answer.Answer:
    if node is None:
        return _answer(request, (_without_node(bound.target.name, pending.pod, policy, known),))
    added = binding.annotations_for(pending.pod, policy, known, node)
    if added is None:
        return _answer(request, ())
    if not added:
        return _answer(request, ("the pod's annotations are at their limit of 256 KiB: its placement is not recorded",))
    operations = [*_without_outdated(bound, pending, added), *patch.annotate(bound.metadata.annotations_or_none, added)]
    body = wire.write(request.uid, wire.Verdict(operations=operations))
    return answer.Answer(body=body, outcome=answer.PATCHED, operations=len(operations), dry_run=bool(request.dry_run))


def _without_node(name: str, pod: views.Pod, policy: policies.Policy, known: facts.Facts) -> str:
    """What is missing on a pod that is bound to a node which no cache has."""
    why = f"node {name} is not known to railwright yet" if name else "target.name of the Binding is empty"
    if not binding.awaits_devices(pod, policy, known):
        return f"{why}: annotation {names.PLACEMENT} is not written"
    return (
        f"{why}: annotation {names.PLACEMENT} and the node's NCCL_IB_HCA are not written, so NCCL takes every device "
        "it sees; delete the pod so that it is bound anew"
    )


def _without_outdated(
    bound: wire.Binding, pending: state.Pending, added: Mapping[str, str]
) -> Iterator[Mapping[str, Any]]:
    """Volcano sends along the annotations it knew when its session began, and the API server writes them onto the pod.
    Those that have changed since are taken out, so that the change survives.
    """
    sent = bound.metadata.annotations
    for key, values in pending.outdated.items():
        if key not in added and sent.get(key) in values and sent[key] != pending.pod.metadata.annotations.get(key):
            yield {"op": "remove", "path": f"/metadata/annotations/{patch.escaped(key)}"}


def _answer(request: wire.Request[wire.Binding], warnings: tuple[str, ...]) -> answer.Answer:
    body = wire.write(request.uid, wire.Verdict(warnings=warnings))
    return answer.Answer(body=body, outcome=answer.ALLOWED, warnings=len(warnings), dry_run=bool(request.dry_run))
