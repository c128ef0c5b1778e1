"""N48: ranks of one job from different images."""

from collections.abc import Iterator

from railwright.fabric.lint import model, settings

_SHOWN = 3  # images that a message repeats


def _check(ranks: model.Ranks) -> Iterator[model.Complaint]:
    if len(ranks.images) < 2:
        return
    listed = sorted(settings.quote(image) for image in ranks.images)
    more = f" and {len(listed) - _SHOWN} more" if len(listed) > _SHOWN else ""
    yield model.Complaint(
        f"the ranks of this job run {', '.join(listed[:_SHOWN])}{more}: NCCL stops at start where its versions differ; "
        "use one image for all ranks"
    )


RULE = model.Rule(
    code="N48",
    name="mixed-images",
    severity=model.Severity.WARNING,
    title="The ranks of one job run different images",
    explanation=(
        "All ranks of a communicator must run the same NCCL; otherwise the initialisation stops. Different images "
        "often hold different NCCLs, or will after the next update of one of them."
    ),
    source="NVIDIA/nccl src/init.cc",
    good=(
        model.Example("one image", model.Ranks("a rank", images=frozenset({"example.com/train:1"}))),
        model.Example("not known", model.Ranks("a rank")),
    ),
    bad=(
        model.Example(
            "two releases", model.Ranks("a rank", images=frozenset({"example.com/train:1", "example.com/train:2"}))
        ),
    ),
    check=_check,
)
