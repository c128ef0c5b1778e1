"""Amounts of resources as exact milli-units, and what a pod requests of them.

Owns the sum over containers as Kubernetes' scheduler computes it. One unit for everything (1 device = 1000,
1 core = 1000, 1 byte = 1000, 1 pod = 1000) so that no decision has to know which resource it counts.
"""

from collections.abc import Mapping

from railwright.fabric import quantity, views

Amounts = Mapping[str, int]
"""Resource name -> milli-units."""

UNIT = 1000  # milli-units in one device, core, byte or pod
PODS = "pods"
_POD_LEVEL = frozenset({"cpu", "memory"})  # what spec.resources of a pod may hold, and huge pages
_HUGE_PAGES = "hugepages-"


def amounts(written: Mapping[str, views.Written]) -> dict[str, int]:
    """Quantities as written -> milli-units. An unreadable quantity counts as 0: the API server never stores one."""
    result = {}
    for name, text in written.items():
        try:
            result[name] = quantity.milli(text)
        except quantity.InvalidQuantityError:
            result[name] = 0
    return result


def requests_of(spec: views.PodSpec) -> dict[str, int]:
    """What a pod takes from its node.

    The larger of (app containers + sidecars) and (any init container + the sidecars started before it), or what the
    pod as a whole requests where it does, plus the overhead of its RuntimeClass and one of `pods`
    (k8s.io/component-helpers/resource PodRequests).
    """
    running: dict[str, int] = {}
    for container in spec.containers:
        _add(running, amounts(container.requests))
    sidecars: dict[str, int] = {}
    starting: dict[str, int] = {}
    for container in spec.init_containers or ():
        wanted = amounts(container.requests)
        if container.restart_policy == "Always":
            _add(sidecars, wanted)
            _raise_to(starting, sidecars)
        else:
            _add(wanted, sidecars)
            _raise_to(starting, wanted)
    _add(running, sidecars)
    _raise_to(running, starting)
    _replace_by_pod_level(running, spec)
    _add(running, amounts(spec.overhead or {}))
    running[PODS] = UNIT
    return {name: amount for name, amount in running.items() if amount > 0}


def _replace_by_pod_level(total: dict[str, int], spec: views.PodSpec) -> None:
    """What spec.resources says counts instead of the containers' sum; a limit alone, where no container asks."""
    if spec.resources is None:
        return
    for written, wins in ((spec.resources.limits, False), (spec.resources.requests, True)):
        for name, amount in amounts(written).items():
            if (wins or name not in total) and (name in _POD_LEVEL or name.startswith(_HUGE_PAGES)):
                total[name] = amount


def fits(free: Amounts, wanted: Amounts) -> int:
    """How many pods that want `wanted` fit into `free`; resources the node does not name count as 0."""
    return max(0, min((free.get(name, 0) // amount for name, amount in wanted.items() if amount > 0), default=0))


def _add(total: dict[str, int], more: Amounts) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


def _raise_to(total: dict[str, int], least: Amounts) -> None:
    for name, amount in least.items():
        if total.get(name, 0) < amount:
            total[name] = amount
