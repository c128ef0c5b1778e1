"""N06: a name that the image's NCCL is too old to read."""

from collections.abc import Iterator

from railwright.fabric.lint import rule_types, settings
from railwright.fabric.nccl import catalogue

_OF_NCCL = frozenset({"core", "core-newer"})  # plugins and contributions have releases of their own


def _check(ctx: rule_types.RankContext) -> Iterator[rule_types.Violation]:
    for setting, row in settings.list_rows(ctx):
        if row.component in _OF_NCCL and row.since is not None and _is_too_old(row, ctx.nccl):
            needed = ".".join(map(str, row.since))
            here = "NCCL here is " + ".".join(map(str, ctx.nccl)) if ctx.nccl else "most images are older"
            yield settings.build_violation(
                setting, f"only NCCL {needed} and newer read this, {here}; update it or remove this"
            )


def _is_too_old(row: catalogue.Variable, version: tuple[int, ...] | None) -> bool:
    if version is None:
        return row.status == "newer"
    return row.since is not None and version < row.since


RULE = rule_types.Rule(
    code="N06",
    name="newer-variable",
    severity=rule_types.Severity.WARNING,
    title="The image's NCCL does not read the variable yet",
    explanation=(
        "NCCL silently ignores variables of later releases. If the image's release is not known, only names newer "
        "than 2.30 are reported."
    ),
    source="release tags of NVIDIA/nccl; later names: strings of the nvidia-nccl packages 2.31.2 and 2.32.3",
    good=(
        rule_types.build_example(
            "a release that reads it", settings.build_env(NCCL_IB_MERGE_NICS="0"), nccl=(2, 20, 3)
        ),
        rule_types.build_example("a release that is not known", settings.build_env(NCCL_IB_MERGE_NICS="0")),
    ),
    bad=(
        rule_types.build_example("too old an image", settings.build_env(NCCL_IB_MERGE_NICS="0"), nccl=(2, 18, 5)),
        rule_types.build_example("a name of 2.31", settings.build_env(NCCL_IB_PKEY_VALUE="32769")),
    ),
    check=_check,
)
