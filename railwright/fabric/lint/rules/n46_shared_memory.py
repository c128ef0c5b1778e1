"""N46: several GPUs and the runtime's small shared memory."""

from collections.abc import Iterator

from railwright.fabric import names
from railwright.fabric.lint import model

_LEAST = 1 << 30  # bytes (NVIDIA/nccl troubleshooting guide: 1 GB or more)
_UNLIMITED = 0
_OF_THE_HOST = "hostPath"


def _check(ranks: model.Ranks) -> Iterator[model.Complaint]:
    if ranks.accelerators < 2 or ranks.capabilities is None:  # None: no pod is seen
        return
    size = ranks.shared_memory
    if size is None and _kind(ranks) != _OF_THE_HOST:
        yield model.Complaint(
            f"the container has {ranks.accelerators} accelerators and no memory volume at {names.DEV_SHM}, where the "
            "runtime gives 64 MiB; mount an emptyDir with medium: Memory there"
        )
    elif size is not None and _UNLIMITED < size < _LEAST:
        yield model.Complaint(
            f"the memory volume at {names.DEV_SHM} holds {size} bytes, and {ranks.accelerators} accelerators need "
            "1Gi or more; raise its sizeLimit"
        )


def _kind(ranks: model.Ranks) -> str | None:
    return ranks.mounts.get(names.DEV_SHM)


RULE = model.Rule(
    code="N46",
    name="small-shared-memory",
    severity=model.Severity.WARNING,
    title="Several GPUs without at least 1 GiB of shared memory",
    explanation=(
        "Ranks of a container exchange data through /dev/shm, as do PyTorch's data loaders. Container runtimes give 64 "
        "MiB, and NCCL fails with an error about shared memory or a bus error. A memory-backed emptyDir at /dev/shm "
        "of 1 GiB or more fixes it."
    ),
    source="NVIDIA/nccl troubleshooting guide, shared memory; NVIDIA/nccl issues 342 and 525",
    good=(
        model.Example("1 GiB", model.Ranks("a rank", accelerators=8, capabilities=frozenset(), shared_memory=1 << 30)),
        model.Example("no limit", model.Ranks("a rank", accelerators=8, capabilities=frozenset(), shared_memory=0)),
        model.Example("one GPU", model.Ranks("a rank", accelerators=1, capabilities=frozenset())),
        model.Example(
            "the host's own",
            model.Ranks("a rank", accelerators=8, capabilities=frozenset(), mounts={"/dev/shm": "hostPath"}),  # noqa: S108 - the POSIX shared-memory mount
        ),
    ),
    bad=(
        model.Example("none", model.Ranks("a rank", accelerators=2, capabilities=frozenset())),
        model.Example(
            "half of it", model.Ranks("a rank", accelerators=8, capabilities=frozenset(), shared_memory=1 << 29)
        ),
        model.Example(
            "on disk",
            model.Ranks("a rank", accelerators=8, capabilities=frozenset(), mounts={"/dev/shm": "emptyDir"}),  # noqa: S108 - the POSIX shared-memory mount
        ),
    ),
    check=_check,
)
