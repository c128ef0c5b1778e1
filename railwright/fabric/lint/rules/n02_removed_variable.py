"""N02: a name that NCCL once read and no longer does."""

from collections.abc import Iterator

from railwright.fabric.lint import rule_types, settings
from railwright.fabric.nccl import catalogue


def _check(ctx: rule_types.RankContext) -> Iterator[rule_types.Violation]:
    for setting, row in settings.list_rows(ctx):
        if row.status == "removed" and not _is_still_read(row, ctx.nccl):
            when = f"after {row.last_seen}" if row.last_seen else "any more"
            advice = f"use {row.deprecated_by}" if row.deprecated_by else "remove it: there is no replacement"
            yield settings.build_violation(setting, f"NCCL does not read this {when}; {advice}")


def _is_still_read(row: catalogue.Variable, version: tuple[int, ...] | None) -> bool:
    return version is not None and row.until is not None and version <= row.until


RULE = rule_types.Rule(
    code="N02",
    name="removed-variable",
    severity=rule_types.Severity.WARNING,
    title="The variable was removed from NCCL",
    explanation=(
        "An old release read this variable. Newer ones silently ignore it. Guides for NCCL 2.3 still recommend "
        "NCCL_IB_GDR_LEVEL, which became NCCL_NET_GDR_LEVEL in 2.4."
    ),
    source="release tags of NVIDIA/nccl",
    good=(
        rule_types.build_example("the present name", settings.build_env(NCCL_NET_GDR_LEVEL="SYS")),
        rule_types.build_example(
            "an image old enough to read it", settings.build_env(NCCL_TREE_THRESHOLD="0"), nccl=(2, 4, 8)
        ),
    ),
    bad=(rule_types.build_example("a name of 2.3", settings.build_env(NCCL_IB_GDR_LEVEL="0")),),
    check=_check,
)
