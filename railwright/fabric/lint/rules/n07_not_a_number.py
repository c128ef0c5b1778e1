"""N07: a number that is not written in plain decimal digits."""

from collections.abc import Iterator

from railwright.fabric.lint import rule_types, settings
from railwright.fabric.nccl import catalogue, integers


def _check(ctx: rule_types.RankContext) -> Iterator[rule_types.Violation]:
    for setting, value, row in settings.list_rows_with_values(ctx):
        text = settings.strip_quotes(value)
        if row.is_numeric and text and not integers.is_plain(text) and not integers.is_octal(text):
            yield settings.build_violation(
                setting, f"is not a decimal number: {_describe_reading(text, row)}; {_suggest_fix(row)}"
            )


def _describe_reading(text: str, row: catalogue.Variable) -> str:
    if row.parser not in catalogue.INTEGER_PARSERS:
        return "its reader expects digits"
    number, number_before = integers.parse(text), integers.parse(text, (2, 31, 2))
    if number is integers.NoValue.DEFAULT:
        return (
            "it is refused" if number_before == number else "NCCL takes it as 0 up to 2.31 and refuses it from 2.32 on"
        )
    return f"NCCL takes it as {number}"


def _suggest_fix(row: catalogue.Variable) -> str:
    return f"write {row.words.replace(' ', ' or ')}" if _is_switch(row) else "write decimal digits"


def _is_switch(row: catalogue.Variable) -> bool:
    return isinstance(row.allowed, catalogue.Enumeration) and len(row.allowed.values) == 2


RULE = rule_types.Rule(
    code="N07",
    name="not-a-number",
    severity=rule_types.Severity.ERROR,
    title="A number is not written in decimal digits",
    explanation=(
        "NCCL reads numbers with strtoll: text without digits becomes 0 up to 2.31.2 and keeps the default in "
        "2.32.3, and text after the digits is dropped. NCCL_IB_DISABLE=true disables nothing in any release, and "
        "NCCL_IB_MERGE_NICS=false changes its meaning with 2.32."
    ),
    source="NVIDIA/nccl src/misc/param.cc, observed on 2.27.7, 2.30.7, 2.31.2 and 2.32.3",
    good=(
        rule_types.build_example("digits", settings.build_env(NCCL_IB_DISABLE="1", NCCL_IB_GID_INDEX="-1")),
        rule_types.build_example("a word where words are meant", settings.build_env(NCCL_NET_GDR_LEVEL="PHB")),
    ),
    bad=(
        rule_types.build_example("a boolean word", settings.build_env(NCCL_IB_DISABLE="true")),
        rule_types.build_example("a unit", settings.build_env(NCCL_IB_TIMEOUT="22s")),
        rule_types.build_example("hexadecimal", settings.build_env(NCCL_IB_TC="0x60")),
    ),
    check=_check,
)
