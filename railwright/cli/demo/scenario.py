"""The demo: a simulated fabric in files, both real servers on loopback, and the steps that a job takes.

The servers run in a temporary folder, and stop at the end. The webhook admits the job's pods, and the extender places
the gang by Volcano's extender protocol: every answer comes from the running servers over HTTP. Volcano's own scores are
modelled.
"""

import asyncio
import base64
import contextlib
import datetime as dt
import importlib.resources
import itertools
import json
import pathlib
import random
import ssl
import sys
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

import aiohttp
import jsonpatch
import msgspec
import yaml

from certs import files, pki
from railwright.cli.demo import objects
from railwright.fabric import resources, text, views
from railwright.fabric.placement import bandwidth
from railwright.fabric.workloads import volcano

START_SECONDS = 60.0  # limit for a server's start, which takes a second of CPU time: this machine may be busy
STOP_SECONDS = 10.0
LISTENING, OPS_LISTENING = "listening on ", "ops listening on "
_POLL_SECONDS = 0.02  # between two looks at a server
NETWORKS = ("lan2", "lan3", "lan4", "lan5")
SEED = 7  # of the random choice of busy nodes and of CPU use; any other seed works as well
BUSY_SHARE = 0.2
_DAY = dt.timedelta(days=1)

Tree = dict[str, Any]


class StartError(RuntimeError):
    """A server did not start; the message contains the end of its log."""


class Server(msgspec.Struct):
    """A started server. Its addresses are known once it listens."""

    process: asyncio.subprocess.Process
    log: pathlib.Path
    address: str = ""
    ops: str = ""


class Fixture(msgspec.Struct, frozen=True):
    """The fabric, the job and the running servers."""

    policy_text: str
    job: Tree
    nodes: Sequence[Tree]
    pods: Sequence[Tree]
    webhook: Server
    extender: Server
    trust: ssl.SSLContext
    folder: pathlib.Path
    objects: Sequence[Tree]


def read_data(name: str) -> str:
    """Return the text of a file that ships with the demo."""
    return importlib.resources.files("railwright.cli.demo").joinpath(name).read_text(encoding="utf-8")


@contextlib.asynccontextmanager
async def start(
    folder: pathlib.Path, options: Sequence[str] = (), report: Callable[[str], None] = lambda _step: None
) -> AsyncIterator[Fixture]:
    """Start both servers with additional `options` on a snapshot of the fabric; stop them at the end.

    `report` is called with each step.
    """
    shared = ["--policy", str(folder / "policy.yaml"), "--snapshot", str(folder / "snapshot.json"), *options]
    secured = ["--tls-cert", str(folder / "webhook.crt"), "--tls-key", str(folder / "webhook.key")]
    policy, job = read_data("policy.yaml"), read_data("job.yaml")
    (folder / "policy.yaml").write_text(policy, encoding="utf-8")
    report(f"building {objects.UNEVEN_64.size} simulated nodes")
    nodes = list(objects.build_nodes(objects.UNEVEN_64))
    pods = [
        *objects.build_busy_pods(nodes, BUSY_SHARE, objects.UNEVEN_64, seed=SEED),
        *objects.build_background_pods(nodes, seed=SEED),
    ]
    namespaces = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        for name in ("prod", "research", "monitoring")
    ]
    networks = [
        {
            "apiVersion": "k8s.cni.cncf.io/v1",
            "kind": "NetworkAttachmentDefinition",
            "metadata": {"name": f"rdma-net-ipam-{name}", "namespace": "prod"},
        }
        for name in NETWORKS
    ]
    items = [*nodes, *pods, *namespaces, *networks]
    write_snapshot(folder / "snapshot.json", items)
    async with contextlib.AsyncExitStack() as stack:
        servers: list[Server] = []
        stack.push_async_callback(_stop, servers)
        report("starting the extender")
        servers.append(await _start_process("extender", [*shared, "--plain-http"], folder))
        report("starting the webhook, with a certificate of a new CA")
        trust = _issue_certificates(folder)
        servers.append(await _start_process("webhook", [*shared, *secured], folder))
        report("waiting until both servers are ready")
        await asyncio.gather(*map(_connect, servers))
        await asyncio.gather(*(_wait_until(server, "/readyz", lambda status, _: status == 200) for server in servers))
        extender, webhook = servers
        yield Fixture(
            policy_text=policy,
            job=yaml.safe_load(job),
            nodes=nodes,
            pods=pods,
            webhook=webhook,
            extender=extender,
            trust=trust,
            folder=folder,
            objects=items,
        )


async def store(fixture: Fixture, pods: Sequence[Tree]) -> None:
    """Add pods to the cluster's snapshot, as an API server would, and wait until both servers have read them."""
    items = [*fixture.objects, *pods]
    write_snapshot(fixture.folder / "snapshot.json", items)
    count = len([item for item in items if item["kind"] == "Pod"])

    def has_reloaded(_status: int, metrics: str) -> bool:
        return _read_metric(metrics, 'railwright_cache_objects{kind="Pod"}') == count

    servers = (fixture.webhook, fixture.extender)
    await asyncio.gather(*(_wait_until(server, "/metrics", has_reloaded) for server in servers))


def write_snapshot(path: pathlib.Path, items: Sequence[Tree]) -> None:
    """Write a snapshot file, which replaces an existing one at once."""
    content = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(items)}).encode()
    files.replace(path, content, 0o600)


def _issue_certificates(folder: pathlib.Path) -> ssl.SSLContext:
    now = dt.datetime.now(dt.UTC)
    ca = pki.issue_ca("railwright demo", now=now, lifetime=_DAY)
    pair = pki.issue_certificate(
        ca, common_name="webhook", hosts=["127.0.0.1"], usages={pki.Usage.SERVER}, now=now, lifetime=_DAY
    )
    files.write(folder, "webhook", pair)
    return ssl.create_default_context(cadata=ca.certificate_pem.decode())


async def _start_process(server: str, options: Sequence[str], folder: pathlib.Path) -> Server:
    loopback = ["--listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0", "--drain-seconds", "0"]
    log = folder / f"{server}.log"
    with log.open("wb") as file:
        process = await asyncio.create_subprocess_exec(sys.executable, "-m", server, *loopback, *options, stderr=file)
    return Server(process, log)


async def _connect(started: Server) -> None:
    """Wait until the server listens. Raise StartError if it ends instead, or after START_SECONDS."""
    try:
        async with asyncio.timeout(START_SECONDS):
            while not started.address or not started.ops:
                has_ended = started.process.returncode is not None
                for line in started.log.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True):
                    if line.startswith(OPS_LISTENING) and line.endswith("\n"):
                        started.ops = line.removeprefix(OPS_LISTENING).strip()
                    elif line.startswith(LISTENING) and line.endswith("\n"):
                        started.address = line.removeprefix(LISTENING).strip()
                if has_ended:
                    raise _build_start_error(started, "did not start")
                await asyncio.sleep(_POLL_SECONDS)
    except TimeoutError:
        raise _build_start_error(started, f"does not listen after {START_SECONDS:g} s") from None


def _build_start_error(started: Server, problem: str) -> StartError:
    log = started.log.read_text(encoding="utf-8", errors="replace")
    return StartError(f"{started.log.stem} {problem}:\n{log[-2000:]}")


async def _stop(servers: Sequence[Server]) -> None:
    """Stop servers together; kill those that take longer than STOP_SECONDS."""
    for started in servers:
        with contextlib.suppress(ProcessLookupError):
            started.process.terminate()
    for started in servers:
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await started.process.wait()
        except TimeoutError:
            started.process.kill()
            await started.process.wait()


async def _wait_until(server: Server, path: str, is_met: Callable[[int, str], bool]) -> None:
    """Poll the server's operations port until `is_met`. Raise StartError with its last answer after START_SECONDS."""
    last = "no answer"
    async with aiohttp.ClientSession() as session:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(START_SECONDS):
                while True:
                    with contextlib.suppress(aiohttp.ClientError):
                        async with session.get(f"http://{server.ops}{path}") as response:
                            last = await response.text()
                            if is_met(response.status, last):
                                return
                    await asyncio.sleep(_POLL_SECONDS)
    raise StartError(
        f"{server.log.stem} at {server.ops}{path}: not ready in {START_SECONDS:g} s, last answer: {last[-500:]}"
    )


def _read_metric(text: str, name: str) -> float:
    """Return the value of a metric, by its name with its labels; 0 if it is absent."""
    for line in text.splitlines():
        if line.startswith(f"{name} "):
            return float(line.split()[1])
    return 0.0


# --- the steps ----------------------------------------------------------------------------------------------


class Admitted(msgspec.Struct, frozen=True):
    """One pod before and after admission."""

    before: Tree
    after: Tree
    warnings: Sequence[str]


class Placed(msgspec.Struct, frozen=True):
    """One pod and its node."""

    pod: str
    node: str
    leaf: str
    spine: str


class Outcome(msgspec.Struct, frozen=True):
    """The result of the demo."""

    admitted: Sequence[Admitted]
    placed: Sequence[Placed]
    without: Sequence[Placed]
    free_by_leaf: Mapping[str, int]
    bandwidth: float  # modelled, over RDMA, as a share of an ideal placement's
    bandwidth_without: float  # of the placement `without`, also over RDMA


async def run(fixture: Fixture, report: Callable[[str], None] = lambda _step: None) -> Outcome:
    """Admit the pods, and place them with and without railwright. `report` is called with each step."""
    uid = str(uuid.UUID(int=1))  # fixed, so that every demo shows the same names
    pods = list(objects.build_volcano_pods(fixture.job, uid=uid))
    async with aiohttp.ClientSession() as session:
        report(f"admitting {text.format_count(len(pods), 'pod')} by the webhook")
        admitted = await asyncio.gather(*(admit(session, fixture, pod) for pod in pods))
        ready = [pod.after for pod in admitted]
        for index, pod in enumerate(ready):
            pod["metadata"]["uid"] = str(uuid.UUID(int=index + 2))
        report("storing the pods in the cluster's snapshot")
        await store(fixture, ready)
        report("placing the gang by the extender")
        placed = await place(session, fixture, ready)
    report("modelling the bandwidth")
    without = await place(None, fixture, ready)
    return Outcome(
        admitted=admitted,
        placed=placed,
        without=without,
        free_by_leaf=_count_free(fixture, ready[0]),
        bandwidth=model_bandwidth(fixture, placed),
        bandwidth_without=model_bandwidth(fixture, without),
    )


def model_bandwidth(fixture: Fixture, placed: Sequence[Placed]) -> float:
    """Return the modelled bandwidth of a ring over these nodes, in rank order, 0..1: that of its slowest edge.

    The edges that leave a domain share its uplinks.
    """
    ratios = yaml.safe_load(fixture.policy_text)["fabrics"]["roce"]["placement"]["oversubscription"]
    slowest = 1.0
    for label, ratio in zip((objects.LEAF_LABEL, objects.SPINE_LABEL), ratios, strict=True):
        domain_of = {node["metadata"]["name"]: node["metadata"]["labels"][label] for node in fixture.nodes}
        sizes = Counter(domain_of.values())
        domains = [domain_of[pod.node] for pod in placed]
        ring = zip(domains, [*domains[1:], domains[0]], strict=True)
        leaving = Counter(domain for domain, following in ring if domain != following)
        for domain, edges in leaving.items():
            slowest = min(slowest, bandwidth.compute_uplink_bandwidth(sizes[domain], ratio, edges))
    return slowest


def count_fewest_leaves(free_by_leaf: Mapping[str, int], pods: int) -> int:
    """Return how many leaves, those with the most free nodes first, have a node for each pod; 0 if all have too few."""
    for count, free in enumerate(itertools.accumulate(sorted(free_by_leaf.values(), reverse=True)), 1):
        if free >= pods:
            return count
    return 0


async def admit(session: aiohttp.ClientSession, fixture: Fixture, pod: Tree) -> Admitted:
    """Return a pod before and after admission by the webhook. Raise StartError if it is rejected."""
    answer = (await _post_review(session, fixture, "/mutate/pods", _build_review(pod, "Pod")))["response"]
    if not answer["allowed"]:
        raise StartError(f"the webhook rejected {pod['metadata']['name']}: {answer['status']['message']}")
    return Admitted(before=pod, after=_apply_patch(pod, answer), warnings=answer.get("warnings") or [])


def _build_review(subject: Tree, kind: str) -> Tree:
    """Return the AdmissionReview that an API server sends when `subject` is created."""
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": str(uuid.uuid4()),
            "kind": {"group": "", "version": "v1", "kind": kind},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "name": subject["metadata"]["name"],
            "namespace": subject["metadata"]["namespace"],
            "operation": "CREATE",
            "object": subject,
            "dryRun": False,
        },
    }


async def _post_review(session: aiohttp.ClientSession, fixture: Fixture, path: str, review: Tree) -> Tree:
    url = f"https://{fixture.webhook.address}{path}?timeout=5s"
    async with session.post(url, json=review, ssl=fixture.trust) as response:
        response.raise_for_status()
        answer: Tree = await response.json()
        return answer


def _apply_patch(tree: Tree, answer: Tree) -> Tree:
    """Return the object after the answer's patch, applied by a library."""
    operations = json.loads(base64.b64decode(answer.get("patch") or "") or "[]")
    result: Tree = jsonpatch.apply_patch(tree, operations)
    return result


async def place(
    session: aiohttp.ClientSession | None, fixture: Fixture, pods: Sequence[Tree], bound: Sequence[Tree] = ()
) -> list[Placed]:
    """Run Volcano's loop for one gang: prioritize, choose the best sum of scores, allocate; then close the session.

    Without `session` the extender is not called, and Volcano's own scores decide. `bound` are pods of other gangs.
    """
    state, rng = open_session(fixture, bound), random.Random(SEED)  # noqa: S311 - repeats
    placed = []
    for pod in pods:
        offered, added = state.list_feasible(pod), {}
        if session is not None:
            request = state.build_request(pod, offered)
            added = (await _post_verb(session, fixture, "prioritize", request))["nodeScore"]
        node = _choose_best({name: state.score(pod, name) + added.get(name, 0.0) for name in offered}, rng)
        task = state.add_pod(pod, node)
        if session is not None:
            await _post_verb(session, fixture, "allocate", {"task": task})
        placed.append(_describe_placement(fixture, pod, node))
    if session is not None:
        await _post_verb(session, fixture, "session-close", {})
    return placed


def open_session(fixture: Fixture, bound: Sequence[Tree]) -> "VolcanoSession":
    """Return a scheduling session of the demo's cluster in which these pods run too."""
    return VolcanoSession(fixture.nodes, [*fixture.pods, *bound])


async def _post_verb(session: aiohttp.ClientSession, fixture: Fixture, verb: str, body: Tree) -> Tree:
    async with session.post(f"http://{fixture.extender.address}/volcano/{verb}", json=body) as response:
        response.raise_for_status()
        answer: Tree = await response.json()
        return answer


def _choose_best(scores: Mapping[str, float], rng: random.Random) -> str:
    if not scores:
        raise StartError("no node has free slots for the gang")
    top = max(scores.values())
    return rng.choice([name for name, score in scores.items() if score == top])  # Volcano breaks ties by chance


def _describe_placement(fixture: Fixture, pod: Tree, node: str) -> Placed:
    labels = next(tree["metadata"]["labels"] for tree in fixture.nodes if tree["metadata"]["name"] == node)
    name = pod["metadata"]["name"]
    return Placed(pod=name, node=node, leaf=labels[objects.LEAF_LABEL], spine=labels[objects.SPINE_LABEL])


def _count_free(fixture: Fixture, pod: Tree) -> dict[str, int]:
    state = open_session(fixture, ())
    free = dict.fromkeys((node["metadata"]["labels"][objects.LEAF_LABEL] for node in fixture.nodes), 0)
    for node in state.list_feasible(pod):
        free[_describe_placement(fixture, pod, node).leaf] += 1
    return free


def count_leaves(placed: Sequence[Placed]) -> int:
    """Return the number of leaves that a placement uses."""
    return len({pod.leaf for pod in placed})


def count_crossings(placed: Sequence[Placed]) -> int:
    """Return the number of ring edges that leave a leaf; each shares the uplinks, which are oversubscribed."""
    return sum(one.leaf != other.leaf for one, other in zip(placed, [*placed[1:], placed[0]], strict=True))


# --- a model of Volcano's session -------------------------------------------------------------------------

_COUNTED = ("cpu", "memory")  # resources that leastrequested and balanced count (NodeResources defaults)
_PENDING, _ALLOCATED, _RUNNING = 1, 2, 32  # api.TaskStatus
_NO_RESOURCE: Mapping[str, Any] = {"MilliCPU": 0, "Memory": 0, "ScalarResources": None, "MaxTaskNum": 0}


class VolcanoSession:
    """One scheduling session: nodes, their pods, and the pods that this session has placed.

    Offers nodes, scores them, and builds the requests of the extender plugin. Sources: volcano-sh/volcano
    pkg/scheduler/actions/allocate, plugins/nodeorder (leastrequested 1, balanced 1; its other terms are equal on every
    node here), plugins/extender. Results are labelled as modelled wherever they are shown.
    """

    def __init__(self, nodes: Sequence[Tree], pods: Sequence[Tree]) -> None:
        self._nodes = {node["metadata"]["name"]: node for node in nodes}
        self._allocatable = {
            name: resources.parse_amounts(node["status"]["allocatable"]) for name, node in self._nodes.items()
        }
        self._idle = {name: dict(amounts) for name, amounts in self._allocatable.items()}
        self._tasks: dict[str, dict[str, Tree]] = {name: {} for name in self._nodes}
        for pod in pods:
            self.add_pod(pod, pod["spec"]["nodeName"], _RUNNING)

    def add_pod(self, pod: Tree, node: str, status: int = _ALLOCATED) -> Tree:
        """Place a pod on a node; return its TaskInfo."""
        for name, amount in _compute_requests(pod).items():
            self._idle[node][name] = self._idle[node].get(name, 0) - amount
        info = _build_task_info(pod, node=node, status=status)
        metadata = pod["metadata"]
        self._tasks[node][f"{metadata['namespace']}/{metadata['name']}"] = info
        return info

    def list_feasible(self, pod: Tree) -> list[str]:
        """Return the nodes with enough idle resources, as the predicates plugin would."""
        requests = _compute_requests(pod)
        return [name for name, idle in self._idle.items() if resources.count_fits(idle, requests)]

    def build_request(self, pod: Tree, offered: Sequence[str]) -> Tree:
        """Return the body of a prioritize request."""
        return {
            "task": _build_task_info(pod, node="", status=_PENDING),
            "nodes": [self._build_node_info(name) for name in offered],
        }

    def score(self, pod: Tree, node: str) -> float:
        """Return the score of Volcano's default plugins, 0..200: higher for emptier and evenly used nodes."""
        requests, idle, total = _compute_requests(pod), self._idle[node], self._allocatable[node]
        shares = [1 - (idle.get(name, 0) - requests.get(name, 0)) / total[name] for name in _COUNTED if total.get(name)]
        if not shares:
            return 0.0
        least_requested = 100 * (1 - sum(shares) / len(shares))
        return least_requested + 100 * (1 - (max(shares) - min(shares)) / 2)

    def _build_node_info(self, name: str) -> Tree:
        idle, total = self._idle[name], self._allocatable[name]
        used = {name: total[name] - idle.get(name, 0) for name in total}
        return {
            "Name": name,
            "Node": self._nodes[name],
            "State": {"Phase": 1, "Reason": ""},
            "Releasing": _NO_RESOURCE,
            "Pipelined": _NO_RESOURCE,
            "Idle": _build_resource(idle),
            "Used": _build_resource(used),
            "Allocatable": _build_resource(total),
            "Capacity": _build_resource(total),
            "Tasks": self._tasks[name],
            "NumaInfo": None,
            "Others": {},
            "ImageStates": {},
        }


def _compute_requests(pod: Tree) -> resources.Amounts:
    """Return a pod's requests in milli-units."""
    return resources.compute_requests(msgspec.convert(pod["spec"], views.PodSpec))


def _build_task_info(pod: Tree, *, node: str, status: int) -> Tree:
    """Return a pod as Volcano's TaskInfo."""
    metadata = pod["metadata"]
    group = metadata.get("annotations", {}).get(volcano.GROUP_ANNOTATION)
    amounts = _build_resource(_compute_requests(pod))
    return {
        "UID": metadata["uid"],
        "Job": f"{metadata['namespace']}/{group}" if group else "",
        "Name": metadata["name"],
        "Namespace": metadata["namespace"],
        "TaskRole": metadata.get("labels", {}).get(volcano.TASK, ""),
        "Resreq": amounts,
        "InitResreq": amounts,
        "NodeName": node,
        "Status": status,
        "LastTransaction": None,
        "Priority": 0,
        "Pod": {"metadata": metadata, "spec": pod["spec"], "status": {"phase": "Pending"}},
        "PodAnnotations": metadata.get("annotations", {}),
    }


def _build_resource(amounts: resources.Amounts) -> Tree:
    """Return an api.Resource: milli-cores, bytes, milli-units of every scalar but pods."""
    scalars = {name: amount for name, amount in amounts.items() if name not in _COUNTED}
    if resources.PODS in scalars:
        scalars[resources.PODS] //= resources.UNIT
    return {
        "MilliCPU": amounts.get("cpu", 0),
        "Memory": amounts.get("memory", 0) // resources.UNIT,
        "ScalarResources": scalars,
        "MaxTaskNum": scalars.get(resources.PODS, 0),
    }
