"""docs/user-guide.md, command by command, under an account with `edit` in one namespace and the Role for users.

A line of three dots in an expected output stands for any lines, three dots at the end of a line for its rest.
"""

import re

import pages
import pytest_asyncio
import yaml
from plane import commands, gangs, manifests
from plane import site as sites
from plane.manifests import LEAF, SPINE

PAGE = pages.DOCS / "user-guide.md"
NAMESPACE = "prod"  # of the page; the test has a namespace of its own
SUFFIX = re.compile(r"\bllm-(\d)-[a-z0-9]{5}\b")


def policy(namespace: str) -> str:
    rails = [
        {"name": f"rail{k}", "network": f"{namespace}/lan{k}", "resource": resource, "device": f"mlx5_{k}"}
        for k, resource in enumerate(gangs.RAILS)
    ]
    keys = {"mounts": {"sharedMemory": "16Gi"}, "security": {"capabilities": ["IPC_LOCK"]}}
    fabric = manifests.fabric(rails, transport="roce", gpusPerNode=8, placement={"domains": [LEAF, SPINE]}, **keys)
    return manifests.policy({"roce": fabric}, defaultFabric="roce")


@pytest_asyncio.fixture(loop_scope="session")
async def cluster(plane, namespace, nodes, site):
    """Yield the page's prerequisites: a namespace, two nodes and the webhook."""
    for name in ("gpu-0", "gpu-1"):
        await nodes.make(name, rails=gangs.ONE_EACH, labels={LEAF: "leaf-0", SPINE: "spine-0"})
    for name in ("lan0", "lan1"):
        await plane.api.create(manifests.network(name), namespace=namespace)
    await site.install(policy(namespace), namespace)
    return namespace


@pytest_asyncio.fixture(loop_scope="session")
async def shell(plane, cluster, person, tmp_path):
    """Yield `await shell(command)`: return a command's output, with the roles that the page names."""
    await person.allow("edit", cluster, "create", "pods")
    for role in yaml.safe_load_all((sites.BASE / "user-rbac.yaml").read_text()):
        await plane.api.ensure(role)
    await person.allow("railwright-user", sites.NAMESPACE, "get", "configmaps/railwright-policy", kind="Role")
    yield commands.Shell(plane, tmp_path, person.kubeconfig)
    await plane.api.delete("RoleBinding", person.user, sites.NAMESPACE)


def read_steps() -> list[tuple[str, list[str]]]:
    """Return the commands of the page in order, each with its expected lines."""
    steps: list[tuple[str, list[str]]] = []
    for block in pages.blocks(PAGE):
        for line in block.text.splitlines() if block.language == "console" else ():
            if line.startswith("$ "):
                steps.append((line.removeprefix("$ "), []))
            else:
                steps[-1][1].append(line)
    return steps


def describe_difference(expected: list[str], printed: list[str]) -> str:
    """Return the differences from the expected output, or ""."""
    pattern = "".join(
        r"(?:.*\n)*?" if line.strip() == "..." else f"{re.escape(line.rstrip()).replace(re.escape('...'), '.*')} *\n"
        for line in expected
    )
    text = "".join(f"{line}\n" for line in printed)
    return "" if re.fullmatch(pattern, text) else f"expected:\n{chr(10).join(expected)}\nprinted:\n{text}"


async def test_every_command_of_the_user_guide_prints_the_output_shown_there(plane, cluster, shell):
    (job,) = [block.text for block in pages.blocks(PAGE) if block.language == "yaml"]
    (shell.folder / "job.yaml").write_text(job.replace(f"namespace: {NAMESPACE}", f"namespace: {cluster}"))
    names: dict[str, str] = {}  # of pods on the page and in the cluster
    differences = []
    steps = read_steps()
    assert {command.split()[0] for command, _ in steps} == {"railwright", "kubectl", "sed"}
    for command, expected in steps:
        real = re.sub(rf"-n {NAMESPACE}\b", f"-n {cluster}", command)
        for page_name, name in names.items():
            real = real.replace(page_name, name)
        _, out, _ = await shell(f"({real}) 2>&1")  # both in their order, as a terminal shows them
        printed = out.replace(cluster, NAMESPACE).splitlines()
        if command.startswith("kubectl apply"):
            await gangs.wait_bound(plane.api, cluster, 2, "job-name=llm")
        if command.endswith("-o name"):
            ordered = sorted(name.removeprefix("pod/") for name in printed)
            names = dict(zip(sorted(line.removeprefix("pod/") for line in expected), ordered, strict=True))
            printed.sort()
        printed = [SUFFIX.sub(lambda match: f"llm-{match[1]}-", line) for line in printed]
        shown = [SUFFIX.sub(lambda match: f"llm-{match[1]}-", line) for line in expected]
        if difference := describe_difference(shown, printed):
            differences.append(f"$ {command}\n{difference}")
    assert not differences, "\n".join(differences)
