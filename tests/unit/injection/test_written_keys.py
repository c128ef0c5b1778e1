"""Values that a user writes into railwright's own keys are never trusted (docs/interface.md 1.5)."""

import pytest
from admitting import admitted, cpu, fabric, gpus, messages, planned, pod

CONF = "railwright.io/nccl.conf"
LAUNCHER = {"railwright.io/fabric": "f", "training.kubeflow.org/job-role": "launcher"}
INITIALIZER = LAUNCHER | {"trainer.kubeflow.org/trainjob-ancestor-step": "model-initializer"}


@pytest.mark.parametrize(
    ("container", "labels", "annotations"),
    [
        (gpus(8), {}, {}),
        (gpus(8), {}, {"railwright.io/skip": "env"}),
        (cpu(), LAUNCHER, {}),
        (cpu(), LAUNCHER, {"railwright.io/skip": "env"}),
        (cpu(), INITIALIZER, {}),
    ],
    ids=["rank", "without env", "launcher", "launcher without env", "bystander"],
)
def test_a_file_of_the_users_does_not_stay_on_a_pod_that_gets_none(container, labels, annotations):
    tree = pod(container, annotations={CONF: "NCCL_ALGO=Ring\n", **annotations})
    tree["metadata"]["labels"] |= labels
    assert any(CONF in warning for warning in messages(planned(tree, fabric())))
    after = admitted(tree, fabric())
    assert after["metadata"]["annotations"][CONF] == ""
    assert planned(after, fabric()).changes == ()
    assert not any(CONF in warning for warning in messages(planned(after, fabric())))
