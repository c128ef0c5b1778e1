"""Which containers get the fabric: those the annotation names, else those that compute, else the first.

Owns that choice. Only app containers can be chosen: Multus and the kubelet's device report read no others.
"""

from collections.abc import Sequence

from fabric import names, views
from fabric.injection import model


def chosen(pod: views.Pod, accelerated: Sequence[int]) -> tuple[int, ...]:
    """Indexes in spec.containers, ascending. Raises RefusedError."""
    containers = pod.spec.containers
    if not containers:
        raise model.RefusedError("containers", "spec.containers is empty; a pod needs a container")
    written = pod.metadata.annotations.get(names.CONTAINERS)
    if written is not None:
        return _named(written, [container.name for container in containers])
    return tuple(accelerated) or (0,)


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
