"""Reviews of workloads: HTTP 400, or an answer whose patch applies, and asks for nothing more the second time."""

import base64
import json
from collections.abc import Iterator

import admitting
import jsonpatch
import working

from fuzzing import catalogue
from railwright.fabric.workloads import registry
from webhook import reviews

EXECUTIONS = 4_000
TOKENS = (
    *b"railwright.io/fabric railwright.io/rails railwright.io/skip railwright.io/containers f default none".split(),
    *b"metadata labels annotations name generateName namespace spec template containers resources limits".split(),
    *b"tasks plugins mpi ssh -master --master=boss replicas mpiReplicaSpecs Launcher Worker replicatedJobs".split(),
    *b"leaderWorkerTemplate leaderTemplate workerTemplate headGroupSpec workerGroupSpecs groupName".split(),
    *b"CREATE UPDATE kind group version oldObject object batch.volcano.sh v1alpha1 Job apps v1 a/b~c".split(),
    *(b'"', b"{", b"}", b"[", b"]", b":", b",", b"null", b"\\ud800", b"\\u0000", b"\xff", b"volumes", b"/dev/shm"),
)
_POLICY = admitting.fabric(
    "    mounts: {sharedMemory: 1Gi, devInfiniband: true}\n    nccl: {delivery: both}\n",
    top="roles: {volcanoTasks: {ps: never, boss: always}}\n",
)


def seeds() -> Iterator[bytes]:
    """Yield every kind, its label on the workload; an update of some."""
    plain = working.template()
    for row in registry.INJECTED_KINDS:
        tree = working.workload(row, plain, name="Worker", label="f")
        yield working.review(row, tree)
        if not row.is_frozen or row.name == "JobSet":
            old = working.workload(row, plain, name="Worker")
            yield working.review(row, tree, operation="UPDATE", oldObject=old)
    volcano = working.kind("Job.batch.volcano.sh")
    spec = {"plugins": {"mpi": ["--master=boss"], "ssh": None}}
    yield working.review(volcano, working.workload(volcano, working.template(label="f"), name="boss", **spec))


def check(data: bytes) -> None:
    """Only MalformedError leaves; an allowed workload is as the patch says, and stays so when it is admitted again."""
    answered = _answer(data)
    if answered is None:
        return
    tree = catalogue.tree(data)
    if tree is None:
        return
    request = tree["request"]
    assert answered["uid"] == request["uid"]
    assert answered["allowed"] or answered["status"]["message"]
    assert all(len(warning) <= reviews.MAX_WARNING for warning in answered.get("warnings", ()))
    if "patch" not in answered:
        return
    operations = json.loads(base64.b64decode(answered["patch"]))
    assert {operation["op"] for operation in operations} <= {"add", "replace"}
    patched = jsonpatch.apply_patch(request["object"], operations)
    again = _answer(json.dumps({**tree, "request": {**request, "object": patched}}).encode())
    assert again is not None
    assert again["allowed"], again
    assert "patch" not in again, base64.b64decode(again["patch"])


def _answer(data: bytes) -> dict | None:
    try:
        answer = working.handle(data, _POLICY)
    except reviews.MalformedError as error:
        assert str(error)
        assert len(str(error)) < 2000
        return None
    return json.loads(answer.body)["response"]
