"""N50: a variable that wins over a line of an nccl.conf."""

from collections.abc import Iterator

from railwright.fabric import names
from railwright.fabric.lint import rule_types, settings

# What the one vendor that publishes such a file writes into it: Azure/azhpc-images, components/customizations.
_AZURE = frozenset({"NCCL_IB_PCI_RELAXED_ORDERING", "NCCL_IGNORE_CPU_AFFINITY", "NCCL_TOPO_FILE"})
_OF_AZURE = "azhpc", "azurehpc"  # words in the names of images built from those scripts
_HOSTS = "hostPath"


def _check(ctx: rule_types.RankContext) -> Iterator[rule_types.Violation]:
    written = {each.name: each for each in reversed(ctx.settings) if each.origin is rule_types.Origin.FILE}
    for setting in settings.effective(ctx):
        if setting.origin is rule_types.Origin.FILE:
            continue
        line = written.get(setting.name)
        if line is not None and line.value != setting.value:
            yield settings.violation(
                setting, f"wins over {settings.format_setting(line)} of the nccl.conf; keep one of them"
            )
        elif line is None and setting.name in _AZURE and _with_azures_file(ctx):
            yield settings.violation(
                setting, f"wins over the {names.NCCL_CONF_PATH} that Azure's HPC images hold; remove it to keep theirs"
            )


def _with_azures_file(ctx: rule_types.RankContext) -> bool:
    of_the_host = ctx.mounts.get(names.NCCL_CONF_PATH) == _HOSTS
    return of_the_host or any(word in (ctx.image or "") for word in _OF_AZURE)


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
        rule_types.example(
            "the same value in both",
            (
                rule_types.Setting("NCCL_IB_TC", "96", "env[0]"),
                rule_types.Setting("NCCL_IB_TC", "96", "line 1", rule_types.Origin.FILE),
            ),
        ),
        rule_types.example("file not known", settings.env(NCCL_TOPO_FILE="/opt/topo.xml")),
    ),
    bad=(
        rule_types.example(
            "another value",
            (
                rule_types.Setting("NCCL_IB_TC", "106", "env[0]"),
                rule_types.Setting("NCCL_IB_TC", "96", "line 1", rule_types.Origin.FILE),
            ),
        ),
        rule_types.example(
            "an image of Azure", settings.env(NCCL_TOPO_FILE="/opt/topo.xml"), image="example.com/azhpc/ubuntu:24.04"
        ),
    ),
    check=_check,
)
