"""N42: a word of the logging controls that NCCL does not know."""

from collections.abc import Iterator

from railwright.fabric.lint import rule_types, settings

_LEVELS = ("VERSION", "WARN", "INFO", "ABORT", "TRACE")
_SUBSYSTEMS = (
    *("INIT", "COLL", "P2P", "SHM", "NET", "GRAPH", "TUNING", "ENV", "ALLOC", "ALLOC_HOST", "CALL", "PROXY", "NVLS"),
    *("BOOTSTRAP", "REG", "PROFILE", "RAS", "DESTROY", "ALL"),
)


def _check(ctx: rule_types.RankContext) -> Iterator[rule_types.Violation]:
    for setting, value in settings.list_values(ctx):
        text = settings.strip_quotes(value)
        if not text:
            continue
        if setting.name == "NCCL_DEBUG" and text.upper() not in _LEVELS:
            yield settings.build_violation(
                setting, f"NCCL does not know this word and prints nothing at all; write one of {' '.join(_LEVELS)}"
            )
        if setting.name == "NCCL_DEBUG_SUBSYS" and (unknown := _list_unknown_words(text)):
            yield settings.build_violation(
                setting,
                f"{', '.join(unknown[:4])}: no such subsystem, and one unknown word drops the whole list; correct it",
            )


def _list_unknown_words(text: str) -> list[str]:
    tokens = text.removeprefix("^").split(",")
    return [settings.quote(token) or "an empty word" for token in tokens if token.upper() not in _SUBSYSTEMS]


RULE = rule_types.Rule(
    code="N42",
    name="unknown-debug-word",
    severity=rule_types.Severity.WARNING,
    title="NCCL_DEBUG or NCCL_DEBUG_SUBSYS contains an unknown word",
    explanation=(
        "An unknown NCCL_DEBUG disables all messages, also errors, instead of selecting the default. One unknown "
        "word in NCCL_DEBUG_SUBSYS drops the whole list, and the default (INIT,BOOTSTRAP,ENV) stays. Letter case "
        "does not matter; ^ counts only in front of the whole list."
    ),
    source="NVIDIA/nccl src/debug.cc, observed on 2.30.7",
    good=(
        rule_types.build_example("any case", settings.build_env(NCCL_DEBUG="warn", NCCL_DEBUG_SUBSYS="init,NET")),
        rule_types.build_example("all but one", settings.build_env(NCCL_DEBUG_SUBSYS="^COLL,CALL")),
    ),
    bad=(
        rule_types.build_example("no such level", settings.build_env(NCCL_DEBUG="WARNING")),
        rule_types.build_example("a number", settings.build_env(NCCL_DEBUG="1")),
        rule_types.build_example("no such subsystem", settings.build_env(NCCL_DEBUG_SUBSYS="INIT,NETWORK")),
        rule_types.build_example("^ inside", settings.build_env(NCCL_DEBUG_SUBSYS="ALL,^CALL")),
    ),
    check=_check,
)
