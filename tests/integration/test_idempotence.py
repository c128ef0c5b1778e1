"""Other webhooks before and after railwright's in a real API server: each change is made once."""

import copy
import json
import random

import admitting
import peers
import pytest
import pytest_asyncio
from plane import api, manifests, peer, waiting

from railwright.fabric.injection import facts, plan

POLICY = """
apiVersion: railwright.io/v1alpha1
fabrics:
  pool:
    transport: roce
    rails:
    - {{name: rail0, network: {namespace}/vf, resource: x.y/vf, device: mlx5_0}}
    - {{name: rail1, network: {namespace}/vf, device: mlx5_1}}
    security: {{capabilities: [IPC_LOCK]}}
  ib:
    transport: infiniband
    rails: [{{name: rail0, resource: x.y/hca, device: mlx5_0}}]
    mounts: {{sharedMemory: 1Gi}}
    env: {{NCCL_DEBUG: WARN}}
  file:
    transport: erdma
    rails: [{{name: rail0, resource: x.y/erdma}}]
  host:
    transport: pvrdma
    rails: [{{name: rail0, device: vmw0}}]
    mounts: {{devInfiniband: true}}
    security: {{privileged: true}}
  tcp:
    transport: tcp
"""
FABRICS = ("pool", "ib", "file", "host", "tcp")
PODS = 40
SEED = 7  # any; the same pods each time
BYSTANDER = "injection-bystander"  # a namespace nobody registers for: what the API server makes of a pod alone
ENTRIES = (
    {"name": "NCCL_DEBUG", "value": "INFO"},
    {"name": "NCCL_SOCKET_IFNAME", "value": "own"},
    {"name": "OWN", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
)
SELECTIONS = (None, "vf", "mine@x", "vf,vf@y", '[{"name":"vf","x-unknown":1}]', "a,,b")


def generate_pods(seed: int) -> list[dict]:
    """Return pods with and without accelerators, and the changes of other webhooks to each."""
    chance = random.Random(seed)  # noqa: S311 - the same pods in each run
    made = []
    for number in range(PODS):
        containers = [_container(chance, f"c{index}") for index in range(chance.choice([1, 2, 2, 3]))]
        if chance.random() < 0.5:
            limits = chance.choice(containers)["resources"]["limits"]
            limits["nvidia.com/gpu"] = "8"
        annotations = {
            peer.BEFORE: ",".join(chance.sample(sorted(peers.ACTIONS), chance.choice([0, 1, 2]))),
            peer.AFTER: ",".join(chance.sample(sorted(peers.ACTIONS), chance.choice([0, 1, 2, 3]))),
        }
        selection = chance.choice(SELECTIONS)
        if selection is not None:
            annotations[peers.NETWORKS] = selection
        if chance.random() < 0.3:
            annotations["railwright.io/delivery"] = "file"
        spec = {"volumes": [{"name": "own", "emptyDir": {}}], "schedulerName": "nobody"}
        spec["automountServiceAccountToken"] = False  # its volume has a new name each time
        pod = manifests.pod(f"pod-{number}", chance.choice(FABRICS), annotations=annotations, **spec)
        pod["spec"]["containers"] = containers
        made.append(pod)
    return made


def _container(chance: random.Random, name: str) -> dict:
    container: dict = {"name": name, "image": "i", "resources": {"limits": {}}}
    if chance.random() < 0.5:
        container["env"] = chance.sample(ENTRIES, chance.choice([1, 2]))
    if chance.random() < 0.2:
        container["envFrom"] = [{"secretRef": {"name": "s"}}]
    if chance.random() < 0.3:
        container["resources"]["limits"]["x.y/vf"] = chance.choice(["0", "1", "2000m"])
    if chance.random() < 0.3:
        container["volumeMounts"] = [{"name": "own", "mountPath": "/dev/shm"}]
    if chance.random() < 0.3:
        container["securityContext"] = {"capabilities": {"drop": ["ALL"]}}
    return copy.deepcopy(container)


def predict(tree: dict, by, at: facts.ClusterFacts) -> dict | str:
    """Return the pod after an earlier webhook, ours, a later one, and ours again if it changed; or a rejection."""
    tree = act(tree, peer.BEFORE)
    for last in (False, True):
        outcome = admitting.plan_pod(tree, by, at)
        if isinstance(outcome, plan.Refusal):
            return outcome.message
        tree = admitting.admit_pod(tree, by, at)
        if not last:
            after = act(tree, peer.AFTER)
            if after == tree:
                return tree
            tree = after
    return tree


def act(tree: dict, when: str) -> dict:
    return peers.apply_actions(tree, filter(None, tree["metadata"]["annotations"].get(when, "").split(",")))


def essence(tree: dict) -> dict:
    """Return the fields that affect how a pod runs, without the API server's defaults."""
    containers = []
    for container in tree["spec"]["containers"]:
        stable = {key: container.get(key) for key in ("name", "image", "envFrom", "volumeMounts")}
        env = json.loads(json.dumps(container.get("env", [])).replace('"apiVersion": "v1", ', ""))
        resources = {part: amounts for part, amounts in container.get("resources", {}).items() if amounts}
        containers.append(stable | {"env": env, "resources": resources, "security": container.get("securityContext")})
    volumes = [(volume["name"], sorted(volume)) for volume in tree["spec"].get("volumes", [])]
    return {"annotations": tree["metadata"]["annotations"], "containers": containers, "volumes": volumes}


@pytest_asyncio.fixture(loop_scope="session")
async def crowded(plane, site, namespace):
    """Our webhook between two others, in a namespace with networks."""
    for name, resource in (("vf", "x.y/vf"), ("mine", ""), ("theirs", "")):
        await plane.api.create(manifests.network(name, resource), namespace=namespace)
    if await plane.api.get_or_none("Namespace", BYSTANDER) is None:
        await plane.make_namespace(BYSTANDER)
    text = POLICY.format(namespace=namespace)
    await site.install(text, namespace)
    others = peer.Peer(plane.api, plane.certificates, peers.ACTIONS)
    await others.start(namespace)
    await waiting.wait(lambda: _seen_by_peers(plane.api, namespace), describe="the other webhooks to be called")
    yield text
    await others.stop()


async def _seen_by_peers(client: api.Api, namespace: str) -> bool:
    probe = generate_pods(SEED)[0]
    probe["metadata"] = {"name": "probe", "annotations": {peer.BEFORE: "add_annotation", peer.AFTER: "append_sidecar"}}
    created = await client.create(probe, namespace=namespace, dry_run=True)
    assert created["metadata"]["annotations"].get("peer/seen") == "yes"
    assert created["spec"]["containers"][-1]["name"] == "logs"
    return True


async def test_pods_converge_between_other_webhooks(plane, namespace, crowded):
    policy = admitting.read_policy(crowded)
    networks = {(namespace, "vf"): "x.y/vf", (namespace, "mine"): None, (namespace, "theirs"): None}
    at = facts.ClusterFacts(namespace=namespace, namespace_labels={}, networks=networks, offered=frozenset())
    stored = refused = changed = 0
    for tree in generate_pods(SEED):
        alone = await plane.api.create(tree, namespace=BYSTANDER, dry_run=True)
        alone["metadata"] = {key: alone["metadata"][key] for key in ("name", "labels", "annotations")}
        expected = predict(alone | {"metadata": alone["metadata"] | {"namespace": namespace}}, policy, at)
        if isinstance(expected, str):
            with pytest.raises(api.ApiError) as error:
                await plane.api.create(tree, namespace=namespace)
            assert expected in error.value.message
            refused += 1
            continue
        created = await plane.api.create(tree, namespace=namespace)
        assert essence(created) == essence(expected)
        changed += bool(tree["metadata"]["annotations"][peer.AFTER])
        again = admitting.plan_pod(created, policy, at)
        assert again.changes == (), "one more call finds nothing to do"
        stored += 1
    assert stored > PODS // 2
    assert changed > PODS // 4
    assert refused > 0
