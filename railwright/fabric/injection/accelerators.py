"""Finds the containers that request an accelerator of the policy, and reads the resource quantities of containers.

A claim counts as an accelerator, because admission does not see what it requests. Only for claims by railwright's own
templates is the number of GPUs known: the name of the template contains it.
"""

from collections.abc import Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet

from railwright.fabric import quantity, views
from railwright.fabric.claims import claim_templates
from railwright.fabric.reasons import reason

_ZEROS = ("0", 0)
_ONE: Mapping[str, int] = {}  # each unit is an accelerator
CLAIM = "claim"  # stands for any claim among the names of extended resources, which have a '/'


def count_by_container(pod: views.Pod, accelerators: Collection[str], units: Mapping[str, int] = _ONE) -> list[int]:
    """Return the number of accelerators of each app container: its requests, otherwise those in railwright's claims.

    `units` has, for each resource that counts shares of an accelerator, the number of shares of a whole one.
    """
    requested = [
        sum([-(-read_amount(container, name) // units.get(name, 1)) for name in accelerators])
        for container in pod.spec.containers
    ]
    if not pod.spec.resource_claims:
        return requested
    return [
        own or claimed
        for own, claimed in zip(requested, claim_templates.count_accelerators(pod, pod.spec.containers), strict=True)
    ]


def has_unknown_count(pod: views.Pod, accelerators: Collection[str]) -> bool:
    """True if the number of accelerators of a container is unknown: it requests none and uses a claim of its author."""
    counts = count_by_container(pod, accelerators)
    authors = _find_claim_users(pod)
    return any(not amount and index in authors for index, amount in enumerate(counts))


def find_accelerated_containers(pod: views.Pod, accelerators: Collection[str]) -> tuple[int, ...]:
    """Return the indexes of the app containers that request an accelerator; if none does, of those that use a claim.

    Init containers are ignored (docs/interface.md 1.4). So are claims that railwright added for rails alone, because
    they must not change the role of a pod.
    """
    counts = count_by_container(pod, accelerators)
    requesting = tuple([index for index, amount in enumerate(counts) if amount > 0])
    if requesting or not pod.spec.resource_claims:
        return requesting
    return _find_claim_users(pod)


def _find_claim_users(pod: views.Pod) -> tuple[int, ...]:
    """Return the indexes of the app containers that use a claim which the pod's author wrote."""
    own = {claim.name for claim in claim_templates.list_railwright_claims(pod)}
    return tuple(
        [
            index
            for index, container in enumerate(pod.spec.containers)
            if container.resources is not None and any(claim.name not in own for claim in container.resources.claims)
        ]
    )


def read_amount(container: views.Container, resource: str) -> int:
    """Return the units of a resource that a container requests: the larger of request and limit, 0 without both."""
    resources = container.resources
    if resources is None:
        return 0
    requested, limit = resources.requests.get(resource, "0"), resources.limits.get(resource, "0")
    try:
        amount = quantity.parse_units(requested)
        return max(0, amount, amount if limit == requested else quantity.parse_units(limit))
    except quantity.InvalidQuantityError as error:
        raise reason.RefusedError("quantity", f"container {container.name}: resource {resource}: {error}") from None


def mentions_resource(container: views.Container, resource: str) -> bool:
    """True if a container sets a request or a limit of the resource, even "0"."""
    resources = container.resources
    return resources is not None and (resource in resources.requests or resource in resources.limits)


def list_mentioned_resources(pod: views.Pod) -> AbstractSet[str]:
    """Return the resources for which an app container sets a request or a limit, even "0"."""
    mentioned: set[str] = set()
    for container in pod.spec.containers:
        if container.resources is not None:
            mentioned.update(container.resources.requests, container.resources.limits)
    return mentioned


def list_requested_resources(container: views.Container) -> AbstractSet[str]:
    """Return the extended resources of which a container requests more than zero. Its quantities must be valid."""
    resources = container.resources
    if resources is None:
        return frozenset()
    requests, limits = resources.requests, resources.limits
    return {
        name
        for name in {**requests, **limits}
        if "/" in name and requests.get(name) not in _ZEROS and limits.get(name) not in _ZEROS
    }


def list_requested_by_containers(containers: Iterable[views.Container]) -> frozenset[str]:
    """Return the extended resources that containers request, and CLAIM if one of them uses a claim."""
    requested: set[str] = set()
    for container in containers:
        requested |= list_requested_resources(container)
        if container.resources is not None and container.resources.claims:
            requested.add(CLAIM)
    return frozenset(requested)


def has_accelerator(requested: Collection[str], accelerators: Collection[str]) -> bool:
    """True if the requested resources contain an accelerator, or a claim, which counts as one."""
    return not {CLAIM, *accelerators}.isdisjoint(requested)
