"""N08: a number with a leading zero, which NCCL reads as octal."""

from collections.abc import Iterator

from railwright.fabric.lint import rule_types, settings
from railwright.fabric.nccl import integers


def _check(ctx: rule_types.RankContext) -> Iterator[rule_types.Violation]:
    for setting, value, row in settings.list_rows_with_values(ctx):
        text = settings.strip_quotes(value)
        if row.is_numeric and integers.is_octal(text):
            meant = "-" * text.startswith("-") + (text.lstrip("-0") or "0")
            reading = f"a leading zero makes it octal: NCCL takes it as {integers.parse(text)}"
            yield settings.build_violation(setting, f"{reading}; write {settings.quote(meant)}")


RULE = rule_types.Rule(
    code="N08",
    name="octal-number",
    severity=rule_types.Severity.ERROR,
    title="A leading zero makes the number octal",
    explanation="NCCL determines the base as C does: 010 is 8, and 08 is 0 because 8 is not an octal digit.",
    source="NVIDIA/nccl src/misc/param.cc, observed on 2.27.7 to 2.32.3",
    good=(rule_types.build_example("no zero in front", settings.build_env(NCCL_IB_TIMEOUT="22", NCCL_IB_SL="0")),),
    bad=(
        rule_types.build_example("a zero in front", settings.build_env(NCCL_IB_TIMEOUT="022")),
        rule_types.build_example("not even octal", settings.build_env(NCCL_IB_RETRY_CNT="07", NCCL_IB_SL="08")),
    ),
    check=_check,
)
