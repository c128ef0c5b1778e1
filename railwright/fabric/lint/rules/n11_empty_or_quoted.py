"""N11: an empty value, or quotes or blanks around one."""

from collections.abc import Iterator

from railwright.fabric.lint import rule_types, settings


def _check(ctx: rule_types.RankContext) -> Iterator[rule_types.Violation]:
    for setting, row in settings.list_rows(ctx):
        value = setting.value
        if value is None or value == row.default_text:
            continue
        if not value:
            yield settings.build_violation(
                setting, "an empty value counts as set for some names and as unset for others; omit it"
            )
        elif value != settings.strip_quotes(value):
            yield settings.build_violation(
                setting,
                "quotes and blanks around a value become part of it; "
                f"write {settings.quote(settings.strip_quotes(value)) or 'a value, or omit it'}",
            )


RULE = rule_types.Rule(
    code="N11",
    name="empty-or-quoted",
    severity=rule_types.Severity.ERROR,
    title="An empty value, or quotes or blanks around one",
    explanation=(
        "Neither Kubernetes nor nccl.conf strips quotes or blanks: a quoted interface name matches nothing, and "
        "NCCL does not start. An empty value counts as unset for numbers and as set for NCCL_NET, which then "
        "matches no network. In YAML, \"'eth0'\" keeps its inner quotes."
    ),
    source="NVIDIA/nccl src/misc/param.cc, observed",
    good=(
        rule_types.build_example("a bare value", settings.build_env(NCCL_SOCKET_IFNAME="=eth0")),
        rule_types.build_example("intended blanks inside", settings.build_env(NCCL_THREAD_THRESHOLDS="1 2")),
    ),
    bad=(
        rule_types.build_example("quotes", settings.build_env(NCCL_SOCKET_IFNAME="'eth0'")),
        rule_types.build_example("an empty value", settings.build_env(NCCL_NET="")),
        rule_types.build_example("a trailing blank", settings.build_env(NCCL_IB_TIMEOUT="22 ")),
    ),
    check=_check,
)
