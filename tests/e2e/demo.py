"""A cluster to try railwright in, with two real nodes and two training jobs: `make demo-cluster DEMO_ARGS=--keep`.

It is the site of the tests in this folder, with the policy and jobs of hack/demo-cluster. The cluster ends
with this program, and leaves nothing on the machine.
"""

import argparse
import asyncio
import base64
import json
import pathlib
import re
import shutil
import signal
import sys
import tempfile

import yaml

TESTS = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(TESTS / name) for name in ("integration", "support")] + [str(TESTS.parent)]

import proxy  # noqa: E402 - the path comes first
from plane import binaries, conditions, helm, releases, waiting  # noqa: E402
from realnode import installation, machine, project_image, rails, site  # noqa: E402

_FILES = releases.ROOT / "hack" / "demo-cluster"
_JOB_SET = "jobset.sigs.k8s.io/jobset-name=llm"
# the token of the kubeconfig: `explain pod` needs one, because the extender asks the API server whose it is
_ACCOUNT = (
    ("create", "serviceaccount", "demo", "--namespace=kube-system"),
    ("create", "clusterrolebinding", "demo", "--clusterrole=cluster-admin", "--serviceaccount=kube-system:demo"),
)


def main() -> int:
    """Run the demo. Return 1 if this machine cannot run it, or if a step failed."""
    parser = argparse.ArgumentParser(description="A cluster of two real nodes with railwright and two training jobs.")
    parser.add_argument("--keep", action="store_true", help="keep the cluster until Ctrl-C")
    arguments = parser.parse_args()
    if reason := machine.find_obstacle() or project_image.find_obstacle():
        print(f"no real nodes on this machine: {reason}", file=sys.stderr)
        return 1
    folder = pathlib.Path(tempfile.mkdtemp(prefix="railwright-site-"))
    try:
        asyncio.run(_show(folder, keep=arguments.keep))
        if arguments.keep:
            _tell("the cluster is gone; nothing of it is left on this machine")
    except KeyboardInterrupt:
        _tell("interrupted: the cluster is gone; nothing of it is left on this machine")
        return 130
    except (AssertionError, releases.FailedError) as error:
        print(f"the demo has failed: {error}", file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


async def _show(folder: pathlib.Path, *, keep: bool) -> None:
    image = project_image.build()
    assert image is not None, "find_obstacle has said that it can be built"
    _tell("starting a control plane and two nodes")
    async with site.run(folder) as running:
        plane = running.plane
        _tell("installing JobSet and railwright, with the policy hack/demo-cluster/policy.yaml")
        await plane.controllers.start("jobset")
        release = installation.Installation(running, image, folder / "helm")
        await rails.install(plane, only=rails.NAMESPACE)
        await release.install((_FILES / "policy.yaml").read_text())
        _tell("waiting until the extender answers the schedulers")
        await plane.call_extender()
        await plane.call_extender_from_kube_scheduler()
        _tell("creating hack/demo-cluster/jobset.yaml, which gets all GPUs, and volcano-job.yaml, which waits for them")
        await plane.apply((_FILES / "jobset.yaml").read_text())
        first, *_ = await conditions.wait_running(plane.api, rails.NAMESPACE, _JOB_SET, 2)
        await plane.apply((_FILES / "volcano-job.yaml").read_text())
        _tell("waiting until that job's pods exist")

        async def is_listed() -> bool:
            return bool(json.loads(await release.run("gangs", "--waiting", "--output=json")))

        await waiting.wait(is_listed, describe="a gang that waits")
        rank = first["metadata"]["name"]
        print(await plane.kubectl("get", "pods", "--all-namespaces", "--output=wide"))
        print(await release.run("gangs", "--output=wide"))
        addresses = await running.execute(rails.NAMESPACE, rank, "ip", "-o", "-4", "addr")
        print(f"interfaces of {rank}:", re.sub(r"\\.*", "", addresses), sep="\n")  # `ip -o` writes \ between lines
        if keep:
            await _wait_for_interrupt(running, rank)


async def _wait_for_interrupt(running: site.Site, rank: str) -> None:
    """Print how to use the cluster, and wait for Ctrl-C. A local port is forwarded to its API server."""
    api_port = running.plane.parts.port["kube-apiserver"]
    async with proxy.Proxy(api_port, connect=running.network.connect) as entrance:
        kubeconfig = await _write_kubeconfig(running, entrance.port)
        _tell(_describe_use(kubeconfig, rank))
        interrupted = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, interrupted.set)
        await interrupted.wait()


def _describe_use(kubeconfig: pathlib.Path, rank: str) -> str:
    programs = (binaries.locate(["kubectl"])["kubectl"], helm.locate(), sys.executable)
    folders = ":".join(str(pathlib.Path(program).parent) for program in programs)
    return f"""\
The cluster runs until Ctrl-C. In another terminal, for kubectl, helm and railwright (also as `kubectl railwright`):

  export KUBECONFIG={kubeconfig} PATH={folders}:$PATH

For example:

  railwright check
  railwright fabric
  railwright gangs
  railwright explain pod/{rank}
  railwright explain pod/next-worker-0
  railwright explain {_FILES}/jobset.yaml
  railwright dashboard
  kubectl get configmap railwright-policy --namespace={installation.NAMESPACE} --output=yaml
  kubectl delete jobset llm
  kubectl get pods --output=wide

When the JobSet is deleted, the waiting job starts."""


async def _write_kubeconfig(running: site.Site, port: int) -> pathlib.Path:
    for command in _ACCOUNT:
        await running.plane.kubectl(*command)
    token = await running.plane.kubectl("create", "token", "demo", "--namespace=kube-system", "--duration=48h")
    authority = base64.b64encode(running.plane.certificates.ca.read_bytes()).decode()
    cluster = {"server": f"https://127.0.0.1:{port}", "certificate-authority-data": authority}
    context = {"cluster": "demo", "user": "demo", "namespace": rails.NAMESPACE}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "demo",
        "clusters": [{"name": "demo", "cluster": cluster}],
        "contexts": [{"name": "demo", "context": context}],
        "users": [{"name": "demo", "user": {"token": token.strip()}}],
    }
    path = running.folder / "kubeconfig"
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(document))
    return path


def _tell(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
