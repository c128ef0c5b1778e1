"""Lists the objects with expressions that railwright cannot evaluate as Kubernetes does, for reports about them.

Their devices are unknown: they are no reason to refuse a node, because kube-scheduler's allocator decides.
"""

from collections.abc import Iterable, Sequence

import msgspec

from railwright.fabric import names, views
from railwright.fabric.claims import comparisons, evaluations, objects, resource_names

DEVICE_CLASS, TEMPLATE, CLAIM = "DeviceClass", "ResourceClaimTemplate", "ResourceClaim"
POLICY = names.POLICY_KIND

_NOT_PLAIN = (
    f"is not a comparison of attributes with constants, or has more than {comparisons.MAX_LENGTH} characters with the "
    "others of its request; expressions of users are not evaluated otherwise"
)


class UnknownSelector(msgspec.Struct, frozen=True):
    """An expression of an object, and why it is unknown which devices match. `device` is an example."""

    kind: str
    metadata: views.ObjectMeta
    expression: str
    match: comparisons.Match
    cause: str
    device: str = ""


def find(
    known: resource_names.ResourceNames,
    templates: Iterable[objects.ResourceClaimTemplate],
    claims: Iterable[objects.ResourceClaim],
) -> Sequence[UnknownSelector]:
    """Return one row for each object and expression: those of classes and policy first, then those of requests."""
    rows = [row for problem in known.evaluations.problems for row in _describe(problem, known)]
    if known.unread_requests:
        rows += [row for template in templates for row in _list_unread(TEMPLATE, template, known)]
        users = (claim for claim in claims if objects.POD_CLAIM_NAME not in claim.metadata.annotations)
        rows += [row for claim in users for row in _list_unread(CLAIM, claim, known)]
    return rows


def _describe(problem: evaluations.Problem, known: resource_names.ResourceNames) -> Iterable[UnknownSelector]:
    classes = known.list_classes_with(problem.expression)
    owners = [(DEVICE_CLASS, device_class.metadata) for device_class in classes]
    for kind, metadata in owners or [(POLICY, views.ObjectMeta())]:
        yield UnknownSelector(kind, metadata, problem.expression, problem.match, problem.cause, problem.device)


def _list_unread(
    kind: str, owner: objects.ResourceClaimTemplate | objects.ResourceClaim, known: resource_names.ResourceNames
) -> Iterable[UnknownSelector]:
    for request in owner.requests:
        exact = request.preferred
        if exact is not None and (exact.device_class_name, exact.expressions) in known.unread_requests:
            unread = next((text for text in exact.expressions if comparisons.parse(text) is None), exact.expressions[0])
            yield UnknownSelector(kind, owner.metadata, unread, comparisons.Match.UNKNOWN, _NOT_PLAIN)
