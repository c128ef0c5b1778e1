"""N46: several GPUs and the runtime's small shared memory."""

from collections.abc import Iterator

from railwright.fabric import names
from railwright.fabric.lint import rule_types

_LEAST = 1 << 30  # bytes (NVIDIA/nccl troubleshooting guide: 1 GB or more)
_UNLIMITED = 0
_OF_THE_HOST = "hostPath"


def _check(ctx: rule_types.RankContext) -> Iterator[rule_types.Violation]:
    if ctx.accelerators < 2 or ctx.capabilities is None:  # None: no pod is seen
        return
    size = ctx.shared_memory
    if size is None and _find_volume_kind(ctx) != _OF_THE_HOST:
        yield rule_types.Violation(
            f"the container has {ctx.accelerators} accelerators and no memory volume at {names.DEV_SHM}, where the "
            "runtime gives 64 MiB; mount an emptyDir with medium: Memory there"
        )
    elif size is not None and _UNLIMITED < size < _LEAST:
        yield rule_types.Violation(
            f"the memory volume at {names.DEV_SHM} holds {size} bytes, and {ctx.accelerators} accelerators need "
            "1Gi or more; raise its sizeLimit"
        )


def _find_volume_kind(ctx: rule_types.RankContext) -> str | None:
    return ctx.mounts.get(names.DEV_SHM)


RULE = rule_types.Rule(
    code="N46",
    name="small-shared-memory",
    severity=rule_types.Severity.WARNING,
    title="Several GPUs without at least 1 GiB of shared memory",
    explanation=(
        "Ranks of a container exchange data through /dev/shm, as do PyTorch's data loaders. The default of "
        "container runtimes is 64 MiB, and NCCL fails with an error about shared memory or a bus error. A memory- "
        "backed emptyDir at /dev/shm of 1 GiB or more fixes it."
    ),
    source="NVIDIA/nccl troubleshooting guide, shared memory; NVIDIA/nccl issues 342 and 525",
    good=(
        rule_types.build_example("1 GiB", accelerators=8, capabilities=frozenset(), shared_memory=1 << 30),
        rule_types.build_example("no limit", accelerators=8, capabilities=frozenset(), shared_memory=0),
        rule_types.build_example("one GPU", accelerators=1, capabilities=frozenset()),
        rule_types.build_example(
            "the host's own", accelerators=8, capabilities=frozenset(), mounts={names.DEV_SHM: "hostPath"}
        ),
    ),
    bad=(
        rule_types.build_example("none", accelerators=2, capabilities=frozenset()),
        rule_types.build_example("half of it", accelerators=8, capabilities=frozenset(), shared_memory=1 << 29),
        rule_types.build_example(
            "on disk", accelerators=8, capabilities=frozenset(), mounts={names.DEV_SHM: "emptyDir"}
        ),
    ),
    check=_check,
)
