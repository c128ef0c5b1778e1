"""Which containers get the fabric: those the annotation names, else those that compute, else the workload's first.

Owns that choice. Only app containers can be chosen: Multus and the kubelet's device report read no others. The first
gives way to one that holds part of the fabric already: between two calls another webhook may have put a sidecar in
front of the container that was chosen. What a container holds is read from the container; the record is not believed.
Known sidecars come last, and before the first comes the container that kubectl takes by default.
"""

from collections.abc import Callable, Sequence

from railwright.fabric import names, views
from railwright.fabric.injection import model, sidecars

Held = tuple[int, ...]  # more is more
_MOST = 256  # chosen containers: each gets a dozen operations, and no pod that runs has so many


def chosen(pod: views.Pod, accelerated: Sequence[int], held: Callable[[views.Container], Held]) -> tuple[int, ...]:
    """Indexes in spec.containers, ascending. `held` weighs what a container has of the fabric. Raises RefusedError."""
    if not pod.spec.containers:
        raise model.RefusedError("containers", "spec.containers is empty; a pod needs a container")
    found = _chosen(pod, accelerated, held)
    if len(found) > _MOST:
        raise model.RefusedError(
            "containers",
            f"{len(found)} containers are chosen for the fabric, of {_MOST} at most; "
            f"name those that need it in annotation {names.CONTAINERS}",
        )
    return found


def _chosen(pod: views.Pod, accelerated: Sequence[int], held: Callable[[views.Container], Held]) -> tuple[int, ...]:
    containers = pod.spec.containers
    written = pod.metadata.annotations.get(names.CONTAINERS)
    if written is not None:
        return _named(written, [container.name for container in containers])
    if accelerated:
        return tuple(accelerated)
    if len(containers) == 1:
        return (0,)
    default = pod.metadata.annotations.get(names.DEFAULT_CONTAINER)
    weights = [(held(each), not sidecars.is_sidecar(each), each.name == default) for each in containers]
    return (weights.index(max(weights)),)


def launching(pod: views.Pod, found: tuple[int, ...]) -> tuple[int, ...]:
    """The containers that may run mpirun in a launcher, of which `found` were chosen.

    All but known sidecars where no annotation names them: a sidecar that nobody knows may stand first, and mpirun's
    settings are harmless to it.
    """
    if names.CONTAINERS in pod.metadata.annotations:
        return found
    others = tuple([index for index, each in enumerate(pod.spec.containers) if not sidecars.is_sidecar(each)])
    return others if set(found) <= set(others) and len(others) <= _MOST else found


def _named(written: str, there: Sequence[str]) -> tuple[int, ...]:
    wanted = [word.strip() for word in written.split(",")]
    at = {name: index for index, name in reversed([*enumerate(there)])}  # of two with one name the first
    for word in wanted:
        if word not in at:
            raise model.RefusedError(
                "containers",
                f"annotation {names.CONTAINERS} {model.quoted(written)}: {model.quoted(word)} is not an app container "
                f"of this pod; it has {model.listed(there)}",
            )
    return tuple(sorted({at[word] for word in wanted}))
