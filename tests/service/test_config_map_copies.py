"""The copies of ConfigMaps over HTTP: created, updated, removed, left alone, and what is reported."""

import asyncio

import controller_replicas
import msgspec
import pytest
import shell
from admitting import admitted, fabric, pod

from railwright.fabric import views
from webhook import config_map_copies

MOUNT = "{name: oci, namespace: default, mountPath: /etc/oci}"
POLICY = fabric(f"    mounts: {{configMaps: [{MOUNT}]}}\n")
SOURCE, COPY = "default/oci", "railwright-oci"
MARKS = {"labels": {"app.kubernetes.io/managed-by": "railwright"}, "annotations": {"railwright.io/copied-from": SOURCE}}


PATH = "/api/v1/namespaces/{}/configmaps/{}"


@pytest.fixture
def put(server):
    """`put(namespace, data)`: store a ConfigMap with the name of copies, or the source, which exists already."""

    def store(namespace: str, data: dict, **metadata) -> None:
        name = "oci" if namespace == "default" else COPY
        path = PATH.format(namespace, name)
        server.keep(path, {"metadata": {"name": name, "namespace": namespace, **metadata}, "data": data})

    store("default", {"nccl.conf": "a=1"})
    return store


@pytest.fixture
def read(server, put):
    """`read(namespace)`: the data of a copy; None if there is none."""
    return lambda namespace: server.stored.get(PATH.format(namespace, COPY), {}).get("data")


@pytest.fixture
def start(start_controller, put, monkeypatch):
    """`start()`: a running replica, whose passes follow each other at once."""
    monkeypatch.setattr(config_map_copies, "_PASS_SECONDS", 0.05)
    monkeypatch.setattr(config_map_copies, "_SHORTEST_PAUSE_SECONDS", 0.01)
    return lambda policy=POLICY, **more: start_controller(config_map_copies.ConfigMapCopier, policy, **more)


def observe(replica: controller_replicas.Replica, *namespaces: str, node: str = "", labels=None, **status) -> None:
    """Show a replica namespaces with a pod that names a copy."""
    for namespace in namespaces:
        tree = admitted(pod(nodeName=node), POLICY)
        tree["metadata"]["namespace"] = namespace
        metadata = {"name": namespace, "labels": labels or {}}
        replica.state.namespaces.upsert(msgspec.convert({"metadata": metadata}, views.Namespace))
        replica.observe(tree | {"status": status})


async def test_each_namespace_with_such_pods_gets_a_copy_that_follows_the_source(server, start, put, read):
    replicas = [start(), start()]
    for replica in replicas:
        observe(replica, "prod", "other")
    await shell.until(lambda: read("prod") and read("other"))
    metadata = server.stored[PATH.format("prod", COPY)]["metadata"]
    assert {part: metadata[part] for part in MARKS} == MARKS
    put("default", {"nccl.conf": "a=2"})
    await shell.until(lambda: read("prod") == read("other") == {"nccl.conf": "a=2"})
    put("prod", {"nccl.conf": "of a tenant"}, **MARKS)
    await shell.until(lambda: read("prod") == {"nccl.conf": "a=2"})
    del server.stored[PATH.format("prod", COPY)]
    await shell.until(lambda: read("prod") == {"nccl.conf": "a=2"})
    assert read("default") is None
    assert not any(replica.messages for replica in replicas)


async def test_a_config_map_of_somebody_else_stays_as_it_is(start, put, read):
    put("prod", {"a": "b"})
    replica = start(unused_seconds=0.0)
    observe(replica, "prod")
    await shell.until(lambda: replica.state.copies.foreign == {("prod", COPY)})
    observe(replica, "prod", phase="Succeeded")
    observe(replica, "other")
    await shell.until(lambda: read("other"))
    assert read("prod") == {"a": "b"}


async def test_a_copy_is_removed_when_no_pod_has_named_it_for_a_time(start, read):
    replica = start(unused_seconds=0.2)
    observe(replica, "prod", "other")
    await shell.until(lambda: read("prod") and read("other"))
    observe(replica, "prod", phase="Succeeded")
    await shell.until(lambda: read("prod") is None)
    assert read("other")
    replica.policy = fabric()  # names no source any more
    await asyncio.sleep(0.1)
    assert read("other"), "its pod runs"
    observe(replica, "other", phase="Failed")
    await shell.until(lambda: read("other") is None)


@pytest.mark.parametrize(
    ("data", "refused", "words"),
    [
        (None, "", "it does not exist; create it"),
        ({"a": "x" * config_map_copies.MAX_BYTES}, "", "at most 262144 are copied"),
        ({}, "GET", "add default/oci to webhook.copiedConfigMaps"),
        ({}, "POST", "403"),
    ],
    ids=["no source", "too large", "not readable", "not writable"],
)
async def test_what_is_not_copied_is_reported_on_the_pod_and_copied_later(
    server, start, put, read, data, refused, words
):
    put("default", data or {})
    if data is None:
        server.remove("configmaps", "oci")
    server.fault = lambda request: 403 if request.method == refused else None
    replica = start()
    observe(replica, "prod", node="n", phase="Pending")
    await shell.until(lambda: replica.messages)
    assert replica.posted[0] == ("Pod", "ConfigMapNotCopied")
    assert replica.messages[0].startswith(f"ConfigMap {COPY}, which the Pod waits for, is not written: ")
    assert words in replica.messages[0]
    assert read("prod") is None
    server.fault = lambda _: None
    put("default", {"a": "b"})
    await shell.until(lambda: read("prod") == {"a": "b"})


async def test_a_namespace_that_may_not_use_the_fabric_gets_no_copy(start, read):
    # anybody may create a pod that names one
    team = "    namespaces: {matchLabels: {team: vision}}\n"
    replica = start(fabric(f"    mounts: {{configMaps: [{MOUNT}]}}\n{team}"))
    observe(replica, "other")
    observe(replica, "prod", labels={"team": "vision"})
    await shell.until(lambda: read("prod"))
    assert read("other") is None


async def test_the_number_of_copies_is_limited(server, start, monkeypatch):
    monkeypatch.setattr(config_map_copies, "MAX_COPIES", 2)
    replica = start()
    observe(replica, "a", "b", "c")
    await shell.until(lambda: replica.messages)
    assert "copies already" in replica.messages[0]
    assert len(server.stored) == 3
    assert replica.state.copies.problems[COPY].startswith("there are")


async def test_pods_that_name_copies_of_nothing_make_no_request(server, start):
    replica = start(fabric())
    observe(replica, "prod")
    await asyncio.sleep(0.1)
    assert [*server.stored] == [PATH.format("default", "oci")]
