"""N58: sources of values that railwright does not see."""

from collections.abc import Iterator

from railwright.fabric import names
from railwright.fabric.lint import rule_types, settings

_ADVICE = {
    "NCCL_ENV_PLUGIN": "the plugin may replace any value railwright sets; remove it, or make sure that it does not",
    "NCCL_CONF_FILE": (
        f"its lines win over those of {names.NCCL_CONF_PATH}, where railwright may put its own; name the variables in "
        "the environment instead"
    ),
}
_HARMLESS = frozenset({"", "none", names.NCCL_CONF_PATH})  # an empty value is N11's


def _check(ctx: rule_types.RankContext) -> Iterator[rule_types.Violation]:
    for setting in settings.list_effective(ctx):
        if setting.name in _ADVICE and setting.value not in _HARMLESS:
            yield settings.build_violation(setting, _ADVICE[setting.name])


RULE = rule_types.Rule(
    code="N58",
    name="other-sources-of-values",
    severity=rule_types.Severity.WARNING,
    title="NCCL_ENV_PLUGIN or NCCL_CONF_FILE may override values",
    explanation=(
        "NCCL asks an environment plugin for every value, and reads the file that NCCL_CONF_FILE names before "
        "/etc/nccl.conf. Either may override railwright's values, and this is not visible outside of the "
        "container."
    ),
    source="NVIDIA/nccl src/misc/param.cc",
    good=(
        rule_types.build_example("no plugin", settings.build_env(NCCL_ENV_PLUGIN="none")),
        rule_types.build_example("the usual file", settings.build_env(NCCL_CONF_FILE="/etc/nccl.conf")),
    ),
    bad=(
        rule_types.build_example("a plugin", settings.build_env(NCCL_ENV_PLUGIN="site")),
        rule_types.build_example("a file", settings.build_env(NCCL_CONF_FILE="/workspace/nccl.conf")),
        rule_types.build_example("a file from elsewhere", settings.build_env(NCCL_CONF_FILE=None)),
    ),
    check=_check,
)
