"""N54: Open MPI is given interfaces to take and interfaces to leave."""

from collections.abc import Iterator

from railwright.fabric.lint import model, settings

_FAMILIES = ("OMPI_MCA_btl_tcp_if", "OMPI_MCA_oob_tcp_if", "PRTE_MCA_prte_if", "PRTE_MCA_oob_tcp_if")


def _check(ctx: model.RankContext) -> Iterator[model.Violation]:
    for family in _FAMILIES:
        included, excluded = ctx.setting(f"{family}_include"), ctx.setting(f"{family}_exclude")
        if included is not None and excluded is not None:
            yield settings.violation(
                included,
                f"conflicts with {settings.format_setting(excluded)}, and Open MPI stops; remove one of the two",
            )


RULE = model.Rule(
    code="N54",
    name="include-and-exclude",
    severity=model.Severity.WARNING,
    title="Open MPI's interface lists, include and exclude, are both set",
    explanation=(
        "The two lists of a component are mutually exclusive, wherever they are set: one in the environment and "
        "one on the command line of mpirun count as both."
    ),
    source="NVIDIA/nccl networking troubleshooting guide; Open MPI documentation, TCP",
    good=(
        model.example("include", settings.env(OMPI_MCA_btl_tcp_if_include="eth0")),
        model.example(
            "of different components",
            settings.env(OMPI_MCA_btl_tcp_if_include="eth0", OMPI_MCA_oob_tcp_if_exclude="lo,docker0"),
        ),
    ),
    bad=(
        model.example(
            "both", settings.env(OMPI_MCA_btl_tcp_if_include="eth0", OMPI_MCA_btl_tcp_if_exclude="lo,docker0")
        ),
        model.example(
            "one of them on the command line",
            (
                model.Setting("OMPI_MCA_oob_tcp_if_exclude", "lo", "command: -mca", model.Origin.MPIRUN),
                model.Setting("OMPI_MCA_oob_tcp_if_include", "eth0", "env[0]"),
            ),
        ),
    ),
    check=_check,
)
