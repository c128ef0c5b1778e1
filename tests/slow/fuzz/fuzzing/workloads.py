"""Fuzzes reviews of workloads: HTTP 400, or an answer whose patch applies, and which has no patch the second time."""

from collections.abc import Iterator

import admitting
import working

from fuzzing import reviews
from railwright.fabric.workloads import registry

EXECUTIONS = 4_000
TOKENS = (
    *b"railwright.io/fabric railwright.io/rails railwright.io/skip railwright.io/containers f default none".split(),
    *b"metadata labels annotations name generateName namespace spec template containers resources limits".split(),
    *b"tasks plugins mpi ssh -master --master=boss replicas mpiReplicaSpecs Launcher Worker replicatedJobs".split(),
    *b"leaderWorkerTemplate leaderTemplate workerTemplate headGroupSpec workerGroupSpecs groupName".split(),
    *b"CREATE UPDATE kind group version oldObject object batch.volcano.sh v1alpha1 Job apps v1 a/b~c".split(),
    *(b'"', b"{", b"}", b"[", b"]", b":", b",", b"null", b"\\ud800", b"\\u0000", b"\xff", b"volumes", b"/dev/shm"),
)
_POLICY = admitting.fabric("    mounts: {sharedMemory: 1Gi, devInfiniband: true}\n")


def seeds() -> Iterator[bytes]:
    """Yield every kind with the label on the workload, and updates of some."""
    plain = working.build_template()
    for row in registry.INJECTED_KINDS:
        tree = working.build_workload(row, plain, name="Worker", label="f")
        yield working.review(row, tree)
        if not row.is_frozen or row.name == "JobSet":
            old = working.build_workload(row, plain, name="Worker")
            yield working.review(row, tree, operation="UPDATE", oldObject=old)
    volcano = working.get_kind("Job.batch.volcano.sh")
    spec = {"plugins": {"mpi": ["--master=boss"], "ssh": None}}
    yield working.review(
        volcano, working.build_workload(volcano, working.build_template(label="f"), name="boss", **spec)
    )


def check(data: bytes) -> None:
    reviews.check_answers(lambda body: working.handle(body, _POLICY), data)
