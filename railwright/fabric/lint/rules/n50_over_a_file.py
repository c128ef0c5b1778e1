"""N50: a variable that overrides a line of an nccl.conf."""

from collections.abc import Iterator

from railwright.fabric import names
from railwright.fabric.lint import rule_types, settings

# What the one vendor that publishes such a file writes into it: Azure/azhpc-images, components/customizations.
_AZURE = frozenset({"NCCL_IB_PCI_RELAXED_ORDERING", "NCCL_IGNORE_CPU_AFFINITY", "NCCL_TOPO_FILE"})
_OF_AZURE = "azhpc", "azurehpc"  # words in the names of images built from those scripts
_HOSTS = "hostPath"


def _check(ctx: rule_types.RankContext) -> Iterator[rule_types.Violation]:
    lines_by_name = {line.name: line for line in reversed(ctx.settings) if line.origin is rule_types.Origin.FILE}
    for setting in settings.list_effective(ctx):
        if setting.origin is rule_types.Origin.FILE:
            continue
        line = lines_by_name.get(setting.name)
        if line is not None and line.value != setting.value:
            yield settings.build_violation(
                setting, f"overrides {settings.format_setting(line)} of the nccl.conf; keep one of them"
            )
        elif line is None and setting.name in _AZURE and _has_azure_file(ctx):
            yield settings.build_violation(
                setting, f"overrides the {names.NCCL_CONF_PATH} of Azure's HPC images; remove it to keep theirs"
            )


def _has_azure_file(ctx: rule_types.RankContext) -> bool:
    is_hosts_file = ctx.mounts.get(names.NCCL_CONF_PATH) == _HOSTS
    return is_hosts_file or any(word in (ctx.image or "") for word in _OF_AZURE)


RULE = rule_types.Rule(
    code="N50",
    name="wins-over-a-file",
    severity=rule_types.Severity.INFO,
    title="The variable overrides the image's nccl.conf",
    explanation=(
        "NCCL uses a line of /etc/nccl.conf only if the environment lacks the name, so a variable of the pod "
        "silently overrides the image's tuning. The file's content is known if railwright mounts it, and for "
        "Azure's HPC images, whose scripts are published. Lint cannot see the files of other images."
    ),
    source="NVIDIA/nccl src/misc/param.cc, observed; Azure/azhpc-images",
    good=(
        rule_types.build_example(
            "the same value in both",
            (
                rule_types.Setting("NCCL_IB_TC", "96", "env[0]"),
                rule_types.Setting("NCCL_IB_TC", "96", "line 1", rule_types.Origin.FILE),
            ),
        ),
        rule_types.build_example("file not known", settings.build_env(NCCL_TOPO_FILE="/opt/topo.xml")),
    ),
    bad=(
        rule_types.build_example(
            "another value",
            (
                rule_types.Setting("NCCL_IB_TC", "106", "env[0]"),
                rule_types.Setting("NCCL_IB_TC", "96", "line 1", rule_types.Origin.FILE),
            ),
        ),
        rule_types.build_example(
            "an image of Azure",
            settings.build_env(NCCL_TOPO_FILE="/opt/topo.xml"),
            image="example.com/azhpc/ubuntu:24.04",
        ),
    ),
    check=_check,
)
