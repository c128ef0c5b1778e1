"""N05: a name that only an external plugin reads."""

from collections.abc import Iterator

from railwright.fabric.lint import model, settings

# NVIDIA's NGC images and those named after it hold HPC-X, which brings the SHARP plugin (NCCL release notes, NGC).
_SHARP = "Mellanox/nccl-rdma-sharp-plugins"
_WITH_SHARP = ("nvcr.io/nvidia/", "hpcx", "hpc-x")


def _check(ranks: model.Ranks) -> Iterator[model.Complaint]:
    for setting, row in settings.rows(ranks):
        if row.status == "plugin" and not _inside(row.owner, ranks.image or ""):
            yield settings.complaint(setting, f"only {row.owner} reads this; it needs that plugin in the image")


def _inside(owner: str, image: str) -> bool:
    return owner == _SHARP and any(word in image for word in _WITH_SHARP)


RULE = model.Rule(
    code="N05",
    name="plugin-variable",
    severity=model.Severity.INFO,
    title="Only a plugin reads the variable",
    explanation=(
        "The name belongs to a network or tuner plugin that is not part of NCCL. Without that plugin in the image it "
        "has no effect, and the image cannot be looked into from here."
    ),
    source="the plugins' repositories",
    good=(
        model.Example("a variable of NCCL itself", model.Ranks("a rank", settings.env(NCCL_IB_DISABLE="0"))),
        model.Example(
            "the image holds the plugin",
            model.Ranks("a rank", settings.env(NCCL_IBEXT_DISABLE="1"), image="nvcr.io/nvidia/pytorch:25.01-py3"),
        ),
    ),
    bad=(
        model.Example("a variable of Google's plugin", model.Ranks("a rank", settings.env(NCCL_FASTRAK_NUM_FLOWS="2"))),
    ),
    check=_check,
)
