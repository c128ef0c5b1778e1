"""N01: a name that neither NCCL nor anything known around it reads."""

from collections.abc import Iterator

from railwright.fabric.lint import rule_types, settings
from railwright.fabric.nccl import catalogue


def _check(ctx: rule_types.RankContext) -> Iterator[rule_types.Violation]:
    for setting in settings.list_effective(ctx):
        name = setting.name
        if name in ctx.own_names:
            continue
        if setting.origin is rule_types.Origin.FILE and name != name.strip().removeprefix("export "):
            yield settings.build_violation(
                setting, f"the file's lines are taken as they are; write {_quote_last_word(name)}=VALUE"
            )
            continue
        if name[: len(catalogue.PREFIX)].upper() == catalogue.PREFIX and catalogue.find(name) is None:
            yield settings.build_violation(setting, f"NCCL knows no such name and ignores it; {_suggest_fix(name)}")


def _quote_last_word(name: str) -> str:
    return settings.quote((name.split() or [""])[-1])


def _suggest_fix(name: str) -> str:
    if catalogue.find(name.upper()) is not None:
        return f"write {name.upper()} in upper case"
    near = catalogue.suggest_name(name)
    return f"did you mean {near}?" if near else "remove it, or correct its spelling"


RULE = rule_types.Rule(
    code="N01",
    name="unknown-variable",
    severity=rule_types.Severity.WARNING,
    title="The name is unknown to NCCL",
    explanation=(
        "NCCL silently ignores names that it does not know, such as a misspelt variable. The name is in none of "
        "the 62 releases from 2.3.5 to 2.30.7, in none of the later binaries, and in no known plugin or "
        "framework. Not reported for a name that a script in the manifest reads itself, such as $NCCL_MIN_BUSBW."
    ),
    source="NVIDIA/nccl src/misc/param.cc; the catalogue of names",
    good=(
        rule_types.build_example("a name NCCL reads", settings.build_env(NCCL_IB_HCA="mlx5")),
        rule_types.build_example("a name of another program", settings.build_env(NCCL_TESTS_DEVICE="0", PATH="/")),
    ),
    bad=(
        rule_types.build_example("a misspelt name", settings.build_env(NCCL_IB_TIMEOUTS="22")),
        rule_types.build_example("a name in lower case", settings.build_env(nccl_debug="INFO")),
    ),
    check=_check,
)
