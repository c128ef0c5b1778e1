"""N43: a log level for debugging."""

from collections.abc import Iterator

from railwright.fabric.lint import rule_types, settings

_NAME = "NCCL_DEBUG"
_LOUD = frozenset({"INFO", "TRACE"})


def _check(ctx: rule_types.RankContext) -> Iterator[rule_types.Violation]:
    setting = ctx.get_setting(_NAME)
    if setting is not None and settings.strip_quotes(setting.value or "").upper() in _LOUD:
        yield settings.build_violation(setting, "makes large logs from every rank; write WARN in production")


RULE = rule_types.Rule(
    code="N43",
    name="large-logs",
    severity=rule_types.Severity.INFO,
    title="NCCL_DEBUG is at a level for debugging",
    explanation=(
        "INFO prints some hundred lines for each rank at start and more at each new communicator; TRACE, if it is "
        "built in, prints a line for each call. This helps to debug, but is too much for a large job in "
        "production."
    ),
    source="NVIDIA/nccl user guide, NCCL_DEBUG",
    good=(rule_types.build_example("warnings", settings.build_env(NCCL_DEBUG="WARN")),),
    bad=(
        rule_types.build_example("info", settings.build_env(NCCL_DEBUG="INFO")),
        rule_types.build_example("trace", settings.build_env(NCCL_DEBUG="trace")),
    ),
    check=_check,
)
