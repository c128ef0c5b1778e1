"""N04: a name of PyTorch's process group in its old form."""

from collections.abc import Iterator

from railwright.fabric.lint import rule_types, settings


def _check(ctx: rule_types.RankContext) -> Iterator[rule_types.Violation]:
    for setting, row in settings.list_rows(ctx):
        if row.status == "framework":
            yield settings.build_violation(
                setting, f"PyTorch renamed this, and NCCL never read it; use {row.deprecated_by}"
            )


RULE = rule_types.Rule(
    code="N04",
    name="framework-variable",
    severity=rule_types.Severity.WARNING,
    title="PyTorch's variable, under its old name",
    explanation=(
        "PyTorch's NCCL process group reads these names with the prefix TORCH_; the old form is deprecated and newer "
        "releases drop it. NCCL itself does not read either."
    ),
    source="PyTorch torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp",
    good=(rule_types.build_example("the new form", settings.build_env(TORCH_NCCL_BLOCKING_WAIT="1")),),
    bad=(rule_types.build_example("the old form", settings.build_env(NCCL_ASYNC_ERROR_HANDLING="1")),),
    check=_check,
)
