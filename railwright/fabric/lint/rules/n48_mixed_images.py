"""N48: ranks of one job from different images."""

from collections.abc import Iterator

from railwright.fabric import text
from railwright.fabric.lint import rule_types, settings

_MAX_IMAGES = 3  # that a message names


def _check(ctx: rule_types.RankContext) -> Iterator[rule_types.Violation]:
    if len(ctx.images) < 2:
        return
    images = text.join_first(sorted(settings.quote(image) for image in ctx.images), _MAX_IMAGES)
    yield rule_types.Violation(
        f"the ranks of this job run {images}: NCCL stops at start where its versions differ; "
        "use one image for all ranks"
    )


RULE = rule_types.Rule(
    code="N48",
    name="mixed-images",
    severity=rule_types.Severity.WARNING,
    title="The ranks of one job run different images",
    explanation=(
        "All ranks of a communicator must run the same release of NCCL; otherwise NCCL fails at start. Different "
        "images often contain different releases, or will after an update."
    ),
    source="NVIDIA/nccl src/init.cc",
    good=(
        rule_types.build_example("one image", images=frozenset({"example.com/train:1"})),
        rule_types.build_example("not known"),
    ),
    bad=(rule_types.build_example("two releases", images=frozenset({"example.com/train:1", "example.com/train:2"})),),
    check=_check,
)
