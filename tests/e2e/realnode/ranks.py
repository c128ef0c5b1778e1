"""Reads a job's container from inside: interfaces, devices, limits, environment of its first process."""

import asyncio
import contextlib
import dataclasses
import re
from collections.abc import AsyncIterator, Mapping, Sequence

from plane import api, conditions, waiting

from realnode import layout, site

IPC_LOCK = 14  # number of the capability (include/uapi/linux/capability.h): it stands above the limit of locked memory


@dataclasses.dataclass(frozen=True)
class Rank:
    """A container in which ranks of a job run, by default the pod's first."""

    site: site.Site
    namespace: str
    pod: str
    container: str = ""
    node: str = ""  # where it runs, if that was asked

    async def run(self, *command: str) -> str:
        """Return the output of a command in the container."""
        return await self.site.execute(self.namespace, self.pod, *command, container=self.container)

    async def list_addresses(self) -> dict[str, str]:
        """Return the IPv4 address and prefix length of each interface, in the order of the interfaces."""
        lines = await self.run("ip", "-o", "-4", "addr")
        return dict(re.findall(r"^\d+: (\S+)\s+inet (\S+)", lines, re.MULTILINE))

    async def read_mtus(self) -> dict[str, int]:
        """Return the MTU of each interface."""
        links = re.findall(r"^\d+: (\w+).* mtu (\d+) ", await self.run("ip", "-o", "link"), re.MULTILINE)
        return {name: int(mtu) for name, mtu in links}

    async def list_devices(self, folder: str) -> set[str]:
        """Return the names in a folder of /dev."""
        return set((await self.run("ls", folder)).split())

    async def read_nccl(self) -> dict[str, str]:
        """Return the variables of NCCL in the environment of the container's first process."""
        environment = await self.read_environment()
        return {name: value for name, value in environment.items() if name.startswith("NCCL_")}

    async def read_environment(self) -> dict[str, str]:
        """Return the environment of the container's first process."""
        text = await self.run("cat", "/proc/1/environ")
        return dict(entry.split("=", 1) for entry in text.split("\0") if "=" in entry)

    async def _read_shared_memory(self) -> int:
        """Return the size of /dev/shm in KiB."""
        mounts = await self.run("cat", "/proc/mounts")
        (options,) = re.findall(r"^tmpfs /dev/shm tmpfs (\S+)", mounts, re.MULTILINE)
        return int(re.findall(r"(?:^|,)size=(\d+)k", options)[0])

    async def check_shared_memory(self, gibibytes: int) -> None:
        """Check the size of /dev/shm: kubelet takes the smaller of the limit and the node's allocatable memory.

        Source: calculateEmptyDirMemorySize in kubernetes pkg/volume/emptydir.
        """
        pod = await self.site.plane.api.get("Pod", self.pod, self.namespace)
        node = await self.site.plane.api.get("Node", pod["spec"]["nodeName"])
        allocatable = int(node["status"]["allocatable"]["memory"].removesuffix("Ki"))
        assert await self._read_shared_memory() == min(gibibytes << 20, allocatable)

    async def has_capability(self, number: int) -> bool:
        """Return True if the capability is effective in the first process."""
        status = await self.run("cat", "/proc/1/status")
        return bool(int(re.findall(r"^CapEff:\s+(\S+)", status, re.MULTILINE)[0], 16) >> number & 1)

    async def check_rails(self, subnets: Sequence[str]) -> dict[str, str]:
        """Check that net1, net2 and so on have an address of their rail and its MTU; return addresses by interface.

        `subnets` are the first three numbers of the addresses of each rail.
        """
        addresses = await self.list_addresses()
        networks = [f"net{index + 1}" for index in range(len(subnets))]
        assert list(addresses) == ["lo", "eth0", *networks]
        mtus = await self.read_mtus()
        for name, subnet in zip(networks, subnets, strict=True):
            assert re.fullmatch(rf"{re.escape(subnet)}\.\d+/24", addresses[name]), addresses
            assert mtus[name] == layout.MTU
        return {name: addresses[name].partition("/")[0] for name in networks}

    async def ping_rails(self, addresses: Mapping[str, str]) -> None:
        """Send packets of 8,900 bytes to the addresses, each by the interface of the same rail."""
        await asyncio.gather(*(self._ping(name, address) for name, address in addresses.items()))

    async def _ping(self, interface: str, address: str) -> None:
        command = ("ping", "-c3", "-i0.2", "-W2", "-s8900", "-I", interface, address)
        output = await self.run(*command)
        assert "3 packets received, 0% packet loss" in output, output


@contextlib.asynccontextmanager
async def run_job(
    running: site.Site, job: api.Object, selector: str, count: int, *, seconds: float = 180
) -> AsyncIterator[list[Rank]]:
    """Run a job of `count` pods, which `selector` finds; yield its ranks by name, and delete it afterwards."""
    namespace = job["metadata"]["namespace"]
    await running.plane.api.create(job)
    try:
        pods = await conditions.wait_running(running.plane.api, namespace, selector, count, seconds=seconds)
        yield [Rank(running, namespace, pod["metadata"]["name"], node=pod["spec"]["nodeName"]) for pod in pods]
    finally:
        await running.plane.remove_pods(namespace)


def build_launch(count: int, place: str, *options: str) -> list[str]:
    """Return the start of a launcher's command, before the program: `count` ranks of Open MPI, mapped by `place`.

    It is tried again, because a worker's name may come after its readiness.
    """
    again = ("sh", "-c", 'until "$@"; do sleep 1; done', "sh")
    launch = ("orterun", "--allow-run-as-root", "-np", str(count), "-bind-to", "none", "-map-by", place)
    remote = ("-mca", "plm_rsh_args", "-o StrictHostKeyChecking=no -o ConnectionAttempts=10")
    return [*again, *launch, *remote, *options]


async def wait_launcher_log(running: site.Site, namespace: str, *, seconds: float) -> str:
    """Wait until the launcher of the only MPIJob of a namespace has succeeded, and return its log."""
    plane, label, inside = running.plane, "training.kubeflow.org/job-role=launcher", f"--namespace={namespace}"

    async def find_log() -> str:
        pods = await plane.api.list("Pod", namespace, labels=label)
        ended = [pod["metadata"]["name"] for pod in pods if pod["status"].get("phase") == "Succeeded"]
        return await plane.kubectl("logs", inside, ended[0]) if ended else ""

    async def explain() -> str:
        seen = await plane.kubectl("get", "pods,events", inside, "--output=wide")
        return seen + await plane.kubectl("logs", inside, f"--selector={label}", "--tail=30", check=False)

    return await waiting.wait(find_log, seconds=seconds, describe=explain)


def simplify(template: api.Object, image: str, command: Sequence[str]) -> None:
    """Set an available image in a pod template's only container, and make its pods end at once."""
    template["spec"]["terminationGracePeriodSeconds"] = 0
    (container,) = template["spec"]["containers"]
    container |= {"image": image, "command": list(command)}
