"""N55: settings of the verbs library on EFA."""

from collections.abc import Iterator

from railwright.fabric.lint import effective_values, rule_types, settings
from railwright.fabric.policy import model as policies

_PREFIX = "RDMAV_"
_EFA = rule_types.FabricContext(transport=policies.Transport.EFA)


def _check(ctx: rule_types.RankContext) -> Iterator[rule_types.Violation]:
    if not effective_values.is_on_efa(ctx):
        return
    for setting in settings.list_effective(ctx):
        if setting.name.startswith(_PREFIX):
            yield settings.build_violation(setting, "is not for EFA and breaks on newer kernels; remove it")


RULE = rule_types.Rule(
    code="N55",
    name="rdmav-on-efa",
    severity=rule_types.Severity.WARNING,
    title="RDMAV_ variables on EFA",
    explanation=(
        "RDMAV_FORK_SAFE and similar variables make the verbs library protect registered memory during a fork. "
        "Kernels that do this themselves do not need them, and they break EFA; the plugin's documentation says "
        "never to set them."
    ),
    source="aws-ofi-nccl doc/efa-env-var.md",
    good=(
        rule_types.build_example("not on EFA", settings.build_env(RDMAV_FORK_SAFE="1")),
        rule_types.build_example("EFA without them", settings.build_env(FI_PROVIDER="efa"), _EFA),
    ),
    bad=(rule_types.build_example("on EFA", settings.build_env(RDMAV_FORK_SAFE="1"), _EFA),),
    check=_check,
)
