"""N54: Open MPI has both an include list and an exclude list of interfaces."""

from collections.abc import Iterator

from railwright.fabric.lint import rule_types, settings

_FAMILIES = ("OMPI_MCA_btl_tcp_if", "OMPI_MCA_oob_tcp_if", "PRTE_MCA_prte_if", "PRTE_MCA_oob_tcp_if")


def _check(ctx: rule_types.RankContext) -> Iterator[rule_types.Violation]:
    for family in _FAMILIES:
        included, excluded = ctx.get_setting(f"{family}_include"), ctx.get_setting(f"{family}_exclude")
        if included is not None and excluded is not None:
            yield settings.build_violation(
                included,
                f"conflicts with {settings.format_setting(excluded)}, and Open MPI stops; remove one of the two",
            )


RULE = rule_types.Rule(
    code="N54",
    name="include-and-exclude",
    severity=rule_types.Severity.WARNING,
    title="Open MPI's interface lists, include and exclude, are both set",
    explanation=(
        "The two lists of a component are mutually exclusive, wherever they are set: one in the environment and "
        "one on the command line of mpirun count as both."
    ),
    source="NVIDIA/nccl networking troubleshooting guide; Open MPI documentation, TCP",
    good=(
        rule_types.build_example("include", settings.build_env(OMPI_MCA_btl_tcp_if_include="eth0")),
        rule_types.build_example(
            "of different components",
            settings.build_env(OMPI_MCA_btl_tcp_if_include="eth0", OMPI_MCA_oob_tcp_if_exclude="lo,docker0"),
        ),
    ),
    bad=(
        rule_types.build_example(
            "both", settings.build_env(OMPI_MCA_btl_tcp_if_include="eth0", OMPI_MCA_btl_tcp_if_exclude="lo,docker0")
        ),
        rule_types.build_example(
            "one of them on the command line",
            (
                rule_types.Setting("OMPI_MCA_oob_tcp_if_exclude", "lo", "command: -mca", rule_types.Origin.MPIRUN),
                rule_types.Setting("OMPI_MCA_oob_tcp_if_include", "eth0", "env[0]"),
            ),
        ),
    ),
    check=_check,
)
