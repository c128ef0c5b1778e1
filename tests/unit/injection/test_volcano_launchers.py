"""Volcano tasks that only start the other tasks, found by their name if no plugin marks them."""

import admitting
import pytest
import working
from admitting import OF_OPEN_MPI, OPEN_MPI, cpu, fabric, gpus, read_env

from railwright.fabric.workloads import membership

VOLCANO = working.get_kind("Job.batch.volcano.sh")
BY = fabric("    security: {capabilities: [IPC_LOCK]}\n    mounts: {sharedMemory: 1Gi}\n" + OF_OPEN_MPI)
LAUNCHERS = ("mpimaster", "master", "launcher", "nccl-launcher", "driver", "spark-driver")
OTHERS = ("worker", "mpiworker", "masters", "psi", "master-0")


def build_pod(task: str) -> dict:
    return admitting.pod(cpu(), labels={"volcano.sh/job-name": "j", "volcano.sh/task-spec": task})


@pytest.mark.parametrize("name", [*LAUNCHERS, *OTHERS])
def test_a_task_named_like_a_launcher_gets_only_open_mpi_settings(name):
    job = working.build_workload(VOLCANO, working.build_template(), label="f")
    tasks = ((name, cpu()), ("ranks", gpus(8)))
    job["spec"]["tasks"] = [{"name": task, "template": working.build_template(own)} for task, own in tasks]
    first, second = working.plan_templates(VOLCANO, job, BY)
    role = "launcher" if name in LAUNCHERS else "excluded"
    assert (first.injection.role, second.injection.role) == (role, "worker")
    stored = working.apply_patch(VOLCANO, job, BY)
    assert stored["spec"]["tasks"][0]["template"]["spec"] == {"containers": [cpu()]}
    after = admitting.admit_pod(build_pod(name), BY)
    assert read_env(after).keys() == (OPEN_MPI if name in LAUNCHERS else set())
    assert after["spec"].keys() == {"containers"}
    assert after["spec"]["containers"][0].keys() - {"env"} == cpu().keys()


@pytest.mark.parametrize("name", LAUNCHERS)
def test_placement_ranks_the_launcher_first_that_admission_recognizes(name):
    first, ranks, *others = [
        membership.find_rank(admitting.decode_pod(build_pod(task))) for task in (name, "ranks", *OTHERS)
    ]
    assert first < ranks
    assert all(other.role == ranks.role for other in others)
