"""Which containers compute: those that request an accelerator of the policy.

Owns that question and the reading of a quantity a user wrote. Knows no fabrics.
"""

import functools
from collections.abc import Collection

from railwright.fabric import quantity, views
from railwright.fabric.injection import model


def count(container: views.Container, accelerators: Collection[str]) -> int:
    """How many accelerators a container requests, by request or limit."""
    return sum(amount(container, name) for name in accelerators)


def accelerated(pod: views.Pod, accelerators: Collection[str]) -> tuple[int, ...]:
    """Indexes of the app containers that request one; init containers do not count (ruling 2)."""
    return tuple(index for index, each in enumerate(pod.spec.containers) if count(each, accelerators) > 0)


def amount(container: views.Container, resource: str) -> int:
    """Units of a resource a container asks for: the larger of request and limit, 0 where it names neither."""
    resources = container.resources
    if resources is None:
        return 0
    most = 0
    for part in (resources.requests_or_none, resources.limits_or_none):
        text = part.get(resource) if part else None
        if text is not None:
            most = max(most, _whole(text, container, resource))
    return most


def quantities(resources: views.ResourceRequirements, resource: str) -> tuple[int, int]:
    """Request and limit of a resource that both name, in units; (-1, -1) where they are not readable."""
    try:
        return _units(resources.requests[resource]), _units(resources.limits[resource])
    except quantity.InvalidQuantityError:
        return -1, -1


def names(container: views.Container, resource: str) -> bool:
    """True where a container names a resource at all, be it "0"."""
    resources = container.resources
    return resources is not None and (resource in resources.requests or resource in resources.limits)


def extended(container: views.Container) -> bool:
    """True where a container names an extended resource, as every accelerator is one: with a domain before '/'."""
    resources = container.resources
    return resources is not None and any("/" in name for name in (*resources.requests, *resources.limits))


def asked(container: views.Container) -> frozenset[str]:
    """The extended resources of which a container asks for one or more; of an admitted pod, whose numbers are good."""
    resources = container.resources
    if resources is None:
        return frozenset()
    found = {name for name in (*resources.requests, *resources.limits) if "/" in name}
    none = {"0", 0}
    return frozenset(
        name for name in found if none.isdisjoint((resources.requests.get(name), resources.limits.get(name)))
    )


def _whole(text: views.Written, container: views.Container, resource: str) -> int:
    try:
        return _units(text)
    except quantity.InvalidQuantityError as error:
        raise model.RefusedError("quantity", f"container {container.name}: resource {resource}: {error}") from None


@functools.lru_cache(maxsize=1024, typed=True)  # pods name few amounts, and a long text is refused before it is kept
def _units(text: views.Written) -> int:
    return quantity.whole(text)
