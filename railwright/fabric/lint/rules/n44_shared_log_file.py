"""N44: ranks that write their logs into one file."""

from collections.abc import Iterator

from railwright.fabric.lint import rule_types, settings

_NAME = "NCCL_DEBUG_FILE"
_STREAMS = ("/dev/", "/proc/")
_PRIVATE = frozenset({"memory", "emptyDir"})  # kinds of volume that no other pod sees


def _check(ctx: rule_types.RankContext) -> Iterator[rule_types.Violation]:
    setting = ctx.get_setting(_NAME)
    value = settings.strip_quotes(setting.value or "") if setting else ""
    if setting is None or not value or value.startswith(_STREAMS):
        return
    if why := _explain_overwriting(setting, value, ctx):
        yield settings.build_violation(
            setting, f"{why} overwrite each other's log; put %h (host) and %p (process) into the name"
        )


def _explain_overwriting(setting: rule_types.Setting, value: str, ctx: rule_types.RankContext) -> str | None:
    processes, hosts = "%p" in value, "%h" in value
    if not processes and ctx.accelerators > 1:
        return "the processes of a container"
    if not hosts and (ctx.count or 1) > 1 and _is_on_shared_volume(value, ctx):
        return "the pods of the template"
    by_launcher = setting.origin is rule_types.Origin.MPIRUN and (ctx.job or 1) > 1
    return "the ranks of the job" if by_launcher and not processes and not hosts else None


def _is_on_shared_volume(path: str, ctx: rule_types.RankContext) -> bool:
    """True if the file is on a volume that other pods may mount as well."""
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
        rule_types.build_example(
            "host and process", settings.build_env(NCCL_DEBUG_FILE="/logs/nccl.%h.%p"), accelerators=8, count=4
        ),
        rule_types.build_example(
            "one rank a pod, and a file of its own",
            settings.build_env(NCCL_DEBUG_FILE="/workspace/nccl.log"),
            accelerators=1,
            count=4,
        ),
        rule_types.build_example("standard error", settings.build_env(NCCL_DEBUG_FILE="/dev/stderr"), accelerators=8),
    ),
    bad=(
        rule_types.build_example(
            "eight processes", settings.build_env(NCCL_DEBUG_FILE="/workspace/nccl.log"), accelerators=8
        ),
        rule_types.build_example(
            "a shared volume",
            settings.build_env(NCCL_DEBUG_FILE="/shared/nccl.%p.log"),
            accelerators=8,
            count=2,
            mounts={"/shared": "other"},
        ),
    ),
    check=_check,
)
