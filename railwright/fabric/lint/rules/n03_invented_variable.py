"""N03: a name that guides recommend and that NCCL never read."""

from collections.abc import Iterator

from railwright.fabric.lint import rule_types, settings

_NOTHING = frozenset({"none", "none known"})  # words of the data for a variable without a replacement


def _check(ctx: rule_types.RankContext) -> Iterator[rule_types.Violation]:
    for setting, row in settings.list_rows(ctx):
        if row.status == "unknown" and setting.name not in ctx.own_names:
            yield settings.build_violation(setting, f"no NCCL ever read this; {_suggest_fix(row.deprecated_by)}")


def _suggest_fix(replacement: str | None) -> str:
    if replacement is None or replacement in _NOTHING:
        return "remove it"
    return replacement if replacement.startswith("unset ") else f"use {replacement}"


RULE = rule_types.Rule(
    code="N03",
    name="invented-variable",
    severity=rule_types.Severity.WARNING,
    title="The variable never existed",
    explanation=(
        "The name is copied from guide to guide, but no release of NCCL reads it. The setting has no effect; the "
        "intended variable has another name."
    ),
    source="release tags of NVIDIA/nccl; for example the queue pair count in oracle-quickstart/oci-hpc-oke",
    good=(rule_types.build_example("the real name", settings.build_env(NCCL_IB_QPS_PER_CONNECTION="4")),),
    bad=(
        rule_types.build_example("an invented name", settings.build_env(NCCL_IB_QP_PER_CONNECTION="4")),
        rule_types.build_example("a switch that does not exist", settings.build_env(NCCL_IB_ENABLE="1")),
    ),
    check=_check,
)
