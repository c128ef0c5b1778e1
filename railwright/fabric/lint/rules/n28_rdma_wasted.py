"""N28: RDMA devices are requested, but the settings forbid NCCL to use them."""

from collections.abc import Iterator

from railwright.fabric.lint import hardware, model, settings, taken
from railwright.fabric.policy import model as policies

_NAME = "NCCL_IB_DISABLE"
_BUILT_IN = frozenset({"ib", "socket"})
_SHARED = {"rdma/hca_shared_devices": 1}


def _check(ranks: model.Ranks) -> Iterator[model.Complaint]:
    setting = ranks.setting(_NAME)
    if setting is None or not taken.is_on(ranks, _NAME) or not taken.rdma_requested(ranks) or _by_plugin(ranks):
        return
    resources = ", ".join(sorted(hardware.rdma(ranks)))
    yield settings.complaint(
        setting, f"turns RDMA off, and the container requests {resources}; remove the variable, or the request"
    )


def _by_plugin(ranks: model.Ranks) -> bool:
    """True where a plugin carries the data and does not look at the variable."""
    named = ranks.value("NCCL_NET")
    return taken.on_efa(ranks) or (named is not None and named.casefold() not in _BUILT_IN)


RULE = model.Rule(
    code="N28",
    name="rdma-requested-and-disabled",
    severity=model.Severity.ERROR,
    title="RDMA devices are requested and turned off",
    explanation=(
        "NCCL_IB_DISABLE turns off NCCL's own RDMA transport: the job holds RDMA devices that others wait for and "
        "trains over TCP. On EFA, or where NCCL_NET names a plugin, the variable is not looked at, and this rule is "
        "silent; so it is on a fabric that the policy holds to TCP."
    ),
    source="NVIDIA/nccl user guide, NCCL_IB_DISABLE",
    good=(
        model.Example("off, and none requested", model.Ranks("a rank", settings.env(NCCL_IB_DISABLE="1"))),
        model.Example("requested and on", model.Ranks("a rank", settings.env(NCCL_IB_DISABLE="0"), devices=_SHARED)),
        model.Example(
            "a comparison over TCP",
            model.Ranks(
                "a rank",
                settings.env(NCCL_IB_DISABLE="1"),
                model.Site(transport=policies.Transport.TCP),
                devices=_SHARED,
            ),
        ),
    ),
    bad=(
        model.Example("requested and off", model.Ranks("a rank", settings.env(NCCL_IB_DISABLE="1"), devices=_SHARED)),
        model.Example(
            "SR-IOV functions",
            model.Ranks("a rank", settings.env(NCCL_IB_DISABLE="1"), devices={"nvidia.com/sriov-rdma-vf": 8}),
        ),
    ),
    check=_check,
)
