"""Two extender processes with one Lease: one answers schedulers, the other names the leader and takes over."""

import asyncio
import json
import pathlib
import signal

import aiohttp
import api_stub
import child_processes
import objects_stub
import processes
import pytest_asyncio
import shell
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
FILTER_REQUEST = json.loads((ROOT / "tests" / "data" / "wire" / "kube-scheduler-filter.json").read_bytes())
NAMESPACE, SERVICE = "railwright-system", "railwright-extender"
LEASE = objects_stub.LEASES.format(NAMESPACE, SERVICE)
LEASE_SECONDS = 3.0
SLICE = f"/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices/{SERVICE}-ipv4"
ENDPOINTS = f"/api/v1/namespaces/{NAMESPACE}/endpoints/{SERVICE}"
PORT = {"name": "extender", "port": 8713, "targetPort": 8713, "protocol": "TCP"}
POLICY = {
    "apiVersion": "railwright.io/v1alpha1",
    "fabrics": {
        "roce": {
            "transport": "roce",
            "rails": [{"name": "rail0", "resource": "rdma/rail0", "device": "mlx5_0"}],
            "placement": {"rails": "preferred", "domains": ["leaf"]},
        }
    },
}
NODES = [
    {"metadata": {"name": f"gpu-{number}", "uid": f"{number}"}, "status": {"allocatable": {"rdma/rail0": "1"}}}
    for number in range(8)
]
SERVICE_OBJECT = {"metadata": {"name": SERVICE, "uid": "service-uid"}, "spec": {"ports": [PORT]}}


class Replica:
    """One extender process as a pod of the Deployment would run it."""

    def __init__(self, number: int, server: processes.Process, session: aiohttp.ClientSession) -> None:
        self.name, self.ip = f"extender-{number}", f"10.0.0.{number}"
        self.server, self.process, self.session = server, server.process, session
        self.url, self.metric = f"http://127.0.0.1:{server.port}", server.metric

    async def send_request(self) -> tuple[int, str, dict]:
        """Send a scheduler's request. Return the status, the header Connection and the body."""
        async with self.session.post(f"{self.url}/scheduler/filter", json=FILTER_REQUEST) as answer:
            return answer.status, answer.headers.get("Connection", ""), await answer.json()

    async def answers(self) -> bool:
        try:
            return (await self.send_request())[0] == 200
        except (aiohttp.ClientError, OSError):
            return False

    async def ready(self) -> bool:
        return (await self.server.ops("/readyz")).status == 200


class Installation:
    """The API server and the replicas of the extender."""

    def __init__(self, objects: objects_stub.Objects, folder: pathlib.Path, session: aiohttp.ClientSession) -> None:
        self.objects, self.folder, self.session = objects, folder, session
        self.replicas: list[Replica] = []

    async def start(self) -> Replica:
        number = len(self.replicas) + 1
        options = ["--plain-http", "--drain-seconds=5", "--leader-elect", f"--lease-seconds={LEASE_SECONDS:.0f}"]
        options += [f"--kubeconfig={self.folder / 'kubeconfig'}", f"--policy={self.folder / 'policy.yaml'}"]
        place = {"POD_NAME": f"extender-{number}", "POD_NAMESPACE": NAMESPACE, "POD_IP": f"10.0.0.{number}"}
        server = await processes.begin("extender", *options, environment=place)
        child_processes.share(server.pid)
        self.replicas.append(Replica(number, server, self.session))
        return self.replicas[-1]

    def list_running(self) -> list[Replica]:
        return [replica for replica in self.replicas if replica.process.returncode is None]

    def list_renewals(self, *replicas: Replica) -> list[float]:
        """When these replicas have written that they hold the Lease."""
        names = tuple(f"{replica.name}_" for replica in replicas)
        return [
            at
            for at, path, written in self.objects.writes
            if path == LEASE and written["spec"]["holderIdentity"].startswith(names)
        ]

    def count_before_takeover(self, old: Replica, new: Replica) -> float:
        """Return the seconds from the last renewal of the old leader to the first one of the new."""
        last = self.list_renewals(old)[-1]
        return next(at for at in self.list_renewals(new) if at > last) - last

    def list_published_addresses(self) -> list[str]:
        return [endpoint["addresses"][0] for endpoint in self.objects.stored.get(SLICE, {}).get("endpoints", ())]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def installation(tmp_path_factory):
    """Yield one for all tests, in their order: a process takes a second of a core to start."""
    tmp_path = tmp_path_factory.mktemp("standby")
    async with objects_stub.serving() as objects, aiohttp.ClientSession() as session:
        objects.keep(f"/api/v1/namespaces/{NAMESPACE}/services/{SERVICE}", SERVICE_OBJECT)
        objects.lists["/api/v1/nodes"] = NODES
        api_stub.kubeconfig(tmp_path, objects.port)
        (tmp_path / "policy.yaml").write_text(yaml.safe_dump(POLICY))
        started = Installation(objects, tmp_path, session)
        yield started
        for replica in started.replicas:
            await replica.server.end()


async def pair(installation: Installation) -> tuple[Replica, Replica]:
    """Return a leader and a standby that knows of it: those that live, and new ones for those that do not."""
    while len(installation.list_running()) < 2:
        await installation.start()

    async def list_problems() -> list[Replica]:
        answering = [extender for extender in installation.list_running() if await extender.answers()]
        others = [extender for extender in installation.list_running() if extender not in answering]
        if len(answering) != 1 or not await others[0].ready():
            return []
        if installation.list_published_addresses() != [answering[0].ip]:
            return []
        return (
            [*answering, *others] if answering[0].name in (await others[0].send_request())[2]["error"]["reason"] else []
        )

    leader, standby = await shell.until(list_problems)
    return leader, standby


async def test_a_replica_without_caches_does_not_lead(installation):
    installation.objects.fault = lambda request: 500 if request.path == "/api/v1/pods" else None
    first = await installation.start()
    await asyncio.sleep(0.7)
    assert LEASE not in installation.objects.stored
    installation.objects.fault = lambda _: None
    await shell.until(first.answers)


async def test_the_standby_names_the_leader_and_takes_over(installation):
    leader, standby = await pair(installation)
    status, connection, body = await standby.send_request()
    assert (status, connection) == (503, "close")
    assert f"{leader.name} leads; reconnect to the Service railwright-extender" in body["error"]["reason"]
    async with installation.session.get(f"{standby.url}/explain/prod/a") as answer:
        assert answer.status == 503
    assert (await leader.ready(), await standby.ready()) == (True, True)
    assert [await extender.metric("railwright_leader") for extender in (leader, standby)] == [1.0, 0.0]
    written = installation.objects.stored[SLICE]
    assert installation.list_published_addresses() == [leader.ip]
    assert written["metadata"]["labels"]["kubernetes.io/service-name"] == SERVICE
    assert written["metadata"]["labels"]["endpointslice.kubernetes.io/managed-by"] == "railwright"
    assert written["metadata"]["ownerReferences"][0]["uid"] == "service-uid"
    assert written["ports"] == [{"name": "extender", "port": 8713, "protocol": "TCP"}]

    before = await standby.metric("railwright_leader_transitions_total")
    leader.process.send_signal(signal.SIGKILL)
    await shell.until(standby.answers)
    assert LEASE_SECONDS <= installation.count_before_takeover(leader, standby) < 2 * LEASE_SECONDS
    status, connection, body = await standby.send_request()
    assert (status, connection) == (200, ""), "its callers may stay"
    assert body["NodeNames"] or body["FailedNodes"] or body["FailedAndUnresolvableNodes"]

    async def have_moved() -> bool:
        addresses = installation.objects.stored[ENDPOINTS]["subsets"][0]["addresses"]
        return installation.list_published_addresses() == [standby.ip] == [address["ip"] for address in addresses]

    await shell.until(have_moved)
    assert await standby.metric("railwright_leader") == 1.0
    assert await standby.metric("railwright_leader_transitions_total") == before + 1
