"""N44: ranks that write their logs into one file."""

from collections.abc import Iterator

from railwright.fabric.lint import rule_types, settings

_NAME = "NCCL_DEBUG_FILE"
_STREAMS = ("/dev/", "/proc/")
_PRIVATE = frozenset({"memory", "emptyDir"})  # kinds of volume that no other pod sees


def _check(ctx: rule_types.RankContext) -> Iterator[rule_types.Violation]:
    setting = ctx.setting(_NAME)
    value = settings.bare(setting.value or "") if setting else ""
    if setting is None or not value or value.startswith(_STREAMS):
        return
    if why := _overwritten(setting, value, ctx):
        yield settings.violation(
            setting, f"{why} overwrite each other's log; put %h (host) and %p (process) into the name"
        )


def _overwritten(setting: rule_types.Setting, value: str, ctx: rule_types.RankContext) -> str | None:
    processes, hosts = "%p" in value, "%h" in value
    if not processes and ctx.accelerators > 1:
        return "the processes of a container"
    if not hosts and (ctx.count or 1) > 1 and _elsewhere(value, ctx):
        return "the pods of the template"
    by_launcher = setting.origin is rule_types.Origin.MPIRUN and (ctx.job or 1) > 1
    return "the ranks of the job" if by_launcher and not processes and not hosts else None


def _elsewhere(path: str, ctx: rule_types.RankContext) -> bool:
    """True for a file on a volume that other pods may mount as well; a container's own files are its own."""
    holding = [mount for mount in ctx.mounts if path.startswith(f"{mount.rstrip('/')}/")]
    return bool(holding) and ctx.mounts[max(holding, key=len)] not in _PRIVATE


RULE = rule_types.Rule(
    code="N44",
    name="shared-log-file",
    severity=rule_types.Severity.WARNING,
    title="Several ranks write one log file",
    explanation=(
        "Every process opens and truncates the file. Without %p the processes of a container overwrite each "
        "other. On a shared volume, pods have equal process IDs, so %h is needed as well."
    ),
    source="NVIDIA/nccl user guide, NCCL_DEBUG_FILE",
    good=(
        rule_types.example(
            "host and process", settings.env(NCCL_DEBUG_FILE="/logs/nccl.%h.%p"), accelerators=8, count=4
        ),
        rule_types.example(
            "one rank a pod, and a file of its own",
            settings.env(NCCL_DEBUG_FILE="/workspace/nccl.log"),
            accelerators=1,
            count=4,
        ),
        rule_types.example("standard error", settings.env(NCCL_DEBUG_FILE="/dev/stderr"), accelerators=8),
    ),
    bad=(
        rule_types.example("eight processes", settings.env(NCCL_DEBUG_FILE="/workspace/nccl.log"), accelerators=8),
        rule_types.example(
            "a shared volume",
            settings.env(NCCL_DEBUG_FILE="/shared/nccl.%p.log"),
            accelerators=8,
            count=2,
            mounts={"/shared": "other"},
        ),
    ),
    check=_check,
)
