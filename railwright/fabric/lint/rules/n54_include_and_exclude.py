"""N54: Open MPI is given interfaces to take and interfaces to leave."""

from collections.abc import Iterator

from railwright.fabric.lint import model, settings

_FAMILIES = ("OMPI_MCA_btl_tcp_if", "OMPI_MCA_oob_tcp_if", "PRTE_MCA_prte_if", "PRTE_MCA_oob_tcp_if")


def _check(ranks: model.Ranks) -> Iterator[model.Complaint]:
    for family in _FAMILIES:
        included, excluded = ranks.setting(f"{family}_include"), ranks.setting(f"{family}_exclude")
        if included is not None and excluded is not None:
            yield settings.complaint(
                included,
                f"and {settings.format_setting(excluded)} exclude each other, and Open MPI stops; remove one of them",
            )


RULE = model.Rule(
    code="N54",
    name="include-and-exclude",
    severity=model.Severity.WARNING,
    title="Open MPI's interface lists, include and exclude, are both set",
    explanation=(
        "The two lists of a component are mutually exclusive, wherever each was set: one in the environment and one on "
        "the command line of mpirun count as both."
    ),
    source="NVIDIA/nccl networking troubleshooting guide; Open MPI documentation, TCP",
    good=(
        model.Example("include", model.Ranks("a rank", settings.env(OMPI_MCA_btl_tcp_if_include="eth0"))),
        model.Example(
            "of different components",
            model.Ranks(
                "a rank", settings.env(OMPI_MCA_btl_tcp_if_include="eth0", OMPI_MCA_oob_tcp_if_exclude="lo,docker0")
            ),
        ),
    ),
    bad=(
        model.Example(
            "both",
            model.Ranks(
                "a rank", settings.env(OMPI_MCA_btl_tcp_if_include="eth0", OMPI_MCA_btl_tcp_if_exclude="lo,docker0")
            ),
        ),
        model.Example(
            "one of them on the command line",
            model.Ranks(
                "a rank",
                (
                    model.Setting("OMPI_MCA_oob_tcp_if_exclude", "lo", "command: -mca", model.Origin.MPIRUN),
                    model.Setting("OMPI_MCA_oob_tcp_if_include", "eth0", "env[0]"),
                ),
            ),
        ),
    ),
    check=_check,
)
