"""Rules about names of variables that NCCL does not read."""

from collections.abc import Callable, Iterator

from railwright.fabric.lint.rule_types import RankContext, Setting, Severity, rule
from railwright.fabric.nccl import catalogue


def _is_unknown_name(name: str) -> bool:
    return name[: len(catalogue.PREFIX)].upper() == catalogue.PREFIX and catalogue.find_variable(name) is None


def _match_status(*statuses: catalogue.Status) -> Callable[[str], bool]:
    """Return a function that is true for the name of a variable with one of these statuses in the catalogue."""
    return lambda name: (row := catalogue.find_variable(name)) is not None and row.status in statuses


@rule("N01", Severity.WARNING, settings=_is_unknown_name)
def check_unknown_name(setting: Setting, ranks: RankContext) -> Iterator[str]:
    """The name is unknown to NCCL.

    NCCL silently ignores names that it does not know, such as a misspelt variable. The name is in none of the 62
    releases from 2.3.5 to 2.30.7, in none of the later binaries, and in no known plugin or framework. Not reported for
    a name that a script in the manifest reads itself, such as $NCCL_MIN_BUSBW, or may read, because the container runs
    a script of a ConfigMap.

    Source: NVIDIA/nccl src/misc/param.cc; the catalogue of names.
    """
    if setting.name not in ranks.own_names and not ranks.has_hidden_names:
        yield f"NCCL knows no such name and ignores it; {_suggest_name(setting.name)}"


def _suggest_name(name: str) -> str:
    if catalogue.find_variable(name.upper()) is not None:
        return f"write {name.upper()} in upper case"
    near = catalogue.suggest_name(name)
    return f"did you mean {near}?" if near else "remove it, or correct its spelling"


@rule("N02", Severity.WARNING, settings=_match_status("removed", "newer", "unknown", "framework"))
def check_nccl_release(setting: Setting, ranks: RankContext) -> Iterator[str]:
    """NCCL never read the variable, no longer reads it, or reads it only in its newest releases.

    NCCL silently ignores all three. Guides for NCCL 2.3 still recommend NCCL_IB_GDR_LEVEL, which became
    NCCL_NET_GDR_LEVEL in 2.4. Other names are copied from guide to guide and were never NCCL's; some are PyTorch's,
    whose process group reads them with the prefix TORCH_, and newer releases drop the old form. Names newer than 2.30
    are reported, because most images have an older release.

    Source: release tags of NVIDIA/nccl; later names: strings of the nvidia-nccl packages 2.31.2 and 2.32.3; for example
    the queue pair count in oracle-quickstart/oci-hpc-oke; PyTorch torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp.
    """
    row = catalogue.get_variable(setting.name)
    if row.status == "removed":
        when = f"after {row.last_seen}" if row.last_seen else "any more"
        advice = f"use {row.deprecated_by}" if row.deprecated_by else "remove it: there is no replacement"
        yield f"NCCL does not read this variable {when}; {advice}"
    elif row.status == "framework":
        yield f"PyTorch has renamed this variable, and NCCL never read it; use {row.deprecated_by}"
    elif row.status == "unknown" and setting.name not in ranks.own_names:
        advice = f"use {row.deprecated_by}" if row.deprecated_by else "remove it"
        yield f"no release of NCCL ever read this variable; {advice}"
    elif row.status == "newer":
        yield (
            f"only NCCL {row.introduced} and newer read this variable, and most images have an older NCCL; update it "
            "in the image, or remove the variable"
        )
