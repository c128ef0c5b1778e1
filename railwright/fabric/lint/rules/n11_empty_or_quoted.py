"""N11: an empty value, or quotes or blanks around one."""

from collections.abc import Iterator

from railwright.fabric.lint import model, settings


def _check(ranks: model.Ranks) -> Iterator[model.Complaint]:
    for setting, row in settings.rows(ranks):
        value = setting.value
        if value is None or value == row.default_text:
            continue
        if not value:
            yield settings.complaint(
                setting, "an empty value counts as set for some names and as unset for others; omit it"
            )
        elif value != settings.bare(value):
            yield settings.complaint(
                setting,
                "quotes and blanks around a value become part of it; "
                f"write {settings.quote(settings.bare(value)) or 'a value, or omit it'}",
            )


RULE = model.Rule(
    code="N11",
    name="empty-or-quoted",
    severity=model.Severity.ERROR,
    title="An empty value, or quotes or blanks around one",
    explanation=(
        "Neither Kubernetes nor nccl.conf strips quotes or blanks: a quoted interface name matches nothing, and "
        "start-up fails. An empty value counts as unset for numbers and as set for NCCL_NET, which then matches no "
        "network. Mind YAML: \"'eth0'\" arrives with its inner quotes."
    ),
    source="NVIDIA/nccl src/misc/param.cc, observed",
    good=(
        model.Example("a bare value", model.Ranks("a rank", settings.env(NCCL_SOCKET_IFNAME="=eth0"))),
        model.Example(
            "blanks inside, where they are meant", model.Ranks("a rank", settings.env(NCCL_THREAD_THRESHOLDS="1 2"))
        ),
    ),
    bad=(
        model.Example("quotes", model.Ranks("a rank", settings.env(NCCL_SOCKET_IFNAME="'eth0'"))),
        model.Example("nothing", model.Ranks("a rank", settings.env(NCCL_NET=""))),
        model.Example("a blank behind it", model.Ranks("a rank", settings.env(NCCL_IB_TIMEOUT="22 "))),
    ),
    check=_check,
)
