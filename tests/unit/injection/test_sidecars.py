"""The containers that get the fabric or mpirun's settings, if other webhooks have inserted sidecars first."""

import pytest
from admitting import LAUNCHER, OF_OPEN_MPI, OPEN_MPI, admit_pod, cpu, fabric, plan_pod, pod, read_record

BY = fabric("    security: {capabilities: [IPC_LOCK]}\n    mounts: {sharedMemory: 1Gi}\n" + OF_OPEN_MPI)
DEFAULT = "kubectl.kubernetes.io/default-container"


def test_a_launcher_that_is_not_the_first_container_gets_open_mpi_settings():
    after = admit_pod(pod(cpu("acme-agent"), cpu("launcher"), labels=LAUNCHER), BY)
    _, launcher = after["spec"]["containers"]
    assert {entry["name"] for entry in launcher["env"]} == OPEN_MPI


@pytest.mark.parametrize(
    ("annotations", "chosen"), [({}, "proxy"), ({DEFAULT: "train"}, "train"), ({DEFAULT: "x"}, "proxy")]
)
def test_without_accelerators_the_default_container_of_kubectl_gets_the_rails(annotations, chosen):
    tree = pod(cpu("proxy"), cpu("train"), annotations={"railwright.io/rails": "1", **annotations})
    after = admit_pod(tree, BY)
    assert read_record(after)["containers"] == [chosen]
    after["spec"]["containers"].reverse()
    assert plan_pod(after, BY).changes == ()
