"""N05: a name that only an external plugin reads."""

from collections.abc import Iterator

from railwright.fabric.lint import rule_types, settings

# NVIDIA's NGC images and those named after it hold HPC-X, which brings the SHARP plugin (NCCL release notes, NGC).
_SHARP = "Mellanox/nccl-rdma-sharp-plugins"
_WITH_SHARP = ("nvcr.io/nvidia/", "hpcx", "hpc-x")


def _check(ctx: rule_types.RankContext) -> Iterator[rule_types.Violation]:
    for setting, row in settings.list_rows(ctx):
        if row.status == "plugin" and not _contains_plugin(row.owner, ctx.image or ""):
            yield settings.build_violation(
                setting, f"only {row.owner} reads this; it has no effect unless the image has it"
            )


def _contains_plugin(owner: str, image: str) -> bool:
    return owner == _SHARP and any(word in image for word in _WITH_SHARP)


RULE = rule_types.Rule(
    code="N05",
    name="plugin-variable",
    severity=rule_types.Severity.INFO,
    title="Only a plugin reads the variable",
    explanation=(
        "The name belongs to a network or tuner plugin that is not part of NCCL. It has no effect if the image "
        "lacks that plugin, which lint cannot see."
    ),
    source="the plugins' repositories",
    good=(
        rule_types.build_example("a variable of NCCL itself", settings.build_env(NCCL_IB_DISABLE="0")),
        rule_types.build_example(
            "the image holds the plugin",
            settings.build_env(NCCL_IBEXT_DISABLE="1"),
            image="nvcr.io/nvidia/pytorch:25.01-py3",
        ),
    ),
    bad=(rule_types.build_example("a variable of Google's plugin", settings.build_env(NCCL_FASTRAK_NUM_FLOWS="2")),),
    check=_check,
)
