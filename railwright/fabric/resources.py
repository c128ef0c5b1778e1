"""Amounts of resources in exact milli-units, and the request of a pod as kube-scheduler computes it.

All resources use milli-units (1 device, core, byte or pod is 1000), so code need not know which resource it counts.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from railwright.fabric import quantity, views

Amounts = Mapping[str, int]
"""Resource name -> milli-units."""


class FrozenAmounts(dict[str, int]):
    """Amounts that never change, so they can be a key of a dictionary. The hash is computed once."""

    __slots__ = ("_hash",)

    def __init__(self, written: Amounts) -> None:
        super().__init__(written)
        self._hash = hash(frozenset(self.items()))

    def __hash__(self) -> int:  # type: ignore[override]  # dict has None
        return self._hash


def freeze_amounts(written: Amounts) -> FrozenAmounts:
    """Return the amounts in a form that can be a key of a dictionary."""
    return written if isinstance(written, FrozenAmounts) else FrozenAmounts(written)


NO_AMOUNTS = FrozenAmounts({})


def add_up_amounts(amounts: Sequence[Amounts]) -> FrozenAmounts:
    """Return the sum of amounts."""
    if len(amounts) <= 1:
        return freeze_amounts(amounts[0]) if amounts else NO_AMOUNTS
    total: Counter[str] = Counter()
    for addend in amounts:
        total.update(addend)
    return FrozenAmounts(total)


UNIT = 1000  # milli-units in one device, core, byte or pod
PODS = "pods"
_POD_LEVEL = frozenset({"cpu", "memory"})  # with huge pages, the resources allowed in spec.resources of a pod
_HUGE_PAGES = "hugepages-"


def parse_amounts(written: Mapping[str, views.RawQuantity]) -> dict[str, int]:
    """Convert quantities to milli-units. An invalid quantity counts as 0; the API server never stores one."""
    amounts = {}
    for name, text in written.items():
        try:
            amounts[name] = quantity.parse_milli(text)
        except quantity.InvalidQuantityError:
            amounts[name] = 0
    return amounts


def compute_requests(spec: views.PodSpec) -> FrozenAmounts:
    """Return the request of a pod, in milli-units (k8s.io/component-helpers/resource, PodRequests).

    It is the larger of (app containers + sidecars) and (any init container + the sidecars started before it). Requests
    of the pod as a whole replace it. The overhead of the RuntimeClass and one unit of `pods` are added.
    """
    running: dict[str, int] = {}
    for container in spec.containers:
        requests = parse_amounts(container.requests)
        if running:
            _add_amounts(running, requests)
        else:
            running = requests
    if spec.init_containers:
        _add_init_containers(running, spec.init_containers)
    _replace_by_pod_level(running, spec)
    if spec.overhead:
        _add_amounts(running, parse_amounts(spec.overhead))
    running[PODS] = UNIT
    if min(running.values()) <= 0:
        running = {name: amount for name, amount in running.items() if amount > 0}
    return FrozenAmounts(running)


class RequestReader:
    """Computes the requests of pods. A pod with the same containers as the pod before it gets the same result.

    Pods of one owner are listed one after the other, and comparing them takes a tenth of the time of computing.
    """

    def __init__(self, share: Callable[[FrozenAmounts], FrozenAmounts]) -> None:
        """`share` returns the same object for equal amounts, to save memory."""
        self._share = share
        self._read: tuple[object, ...] = ()  # everything that is read of the pod before
        self._requests = NO_AMOUNTS

    def compute(self, spec: views.PodSpec) -> FrozenAmounts:
        """Return the result of `compute_requests`, shared between equal pods."""
        read = (spec.containers_or_none, spec.init_containers, spec.overhead, spec.resources)
        if read != self._read:
            self._read, self._requests = read, self._share(compute_requests(spec))
        return self._requests


def _add_init_containers(running: dict[str, int], containers: Sequence[views.Container]) -> None:
    """Add the sidecars to the requests of the app containers, and raise the sum to the needs of each init container."""
    sidecars: dict[str, int] = {}
    starting: dict[str, int] = {}
    for container in containers:
        requests = parse_amounts(container.requests)
        if container.restart_policy == "Always":
            _add_amounts(sidecars, requests)
            _raise_to_amounts(starting, sidecars)
        else:
            _add_amounts(requests, sidecars)
            _raise_to_amounts(starting, requests)
    _add_amounts(running, sidecars)
    _raise_to_amounts(running, starting)


def _replace_by_pod_level(total: dict[str, int], spec: views.PodSpec) -> None:
    """Replace the containers' sum by spec.resources. A limit alone counts if no container requests the resource."""
    if spec.resources is None:
        return
    for quantities, overrides in ((spec.resources.limits, False), (spec.resources.requests, True)):
        for name, amount in parse_amounts(quantities).items():
            if (overrides or name not in total) and (name in _POD_LEVEL or name.startswith(_HUGE_PAGES)):
                total[name] = amount


def _add_amounts(total: dict[str, int], more: Amounts) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


def _raise_to_amounts(total: dict[str, int], minimum: Amounts) -> None:
    for name, amount in minimum.items():
        if total.get(name, 0) < amount:
            total[name] = amount
