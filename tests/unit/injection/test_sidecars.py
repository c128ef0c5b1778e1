"""Sidecars that other webhooks put first in a pod get neither the fabric nor mpirun's settings."""

import admitting
import peers
from admitting import LAUNCHER, OF_OPEN_MPI, OPEN_MPI, admitted, cpu, env, fabric, gpus, messages, planned, pod, record

from railwright.fabric.injection import context

BY = fabric("    security: {capabilities: [IPC_LOCK]}\n    mounts: {sharedMemory: 1Gi}\n" + OF_OPEN_MPI)
DEFAULT = "kubectl.kubernetes.io/default-container"
KNOWN = ["istio-proxy", "linkerd-proxy", "csql-default-db", "fluid-fuse-0", "consul-dataplane-web", "jfs-mount-1"]
KNOWN = sorted({*KNOWN, *context.SIDECARS})


def container(tree: dict, name: str) -> dict:
    (match,) = [container for container in tree["spec"]["containers"] if container["name"] == name]
    return match


def variables(tree: dict, name: str) -> set[str]:
    return {entry["name"] for entry in container(tree, name).get("env", [])}


def test_variables_of_launchers_skip_a_proxy_that_is_the_first_container():
    for sidecar in KNOWN:
        after = admitted(pod(cpu(sidecar), cpu("launcher"), labels=LAUNCHER), BY)
        assert container(after, sidecar) == cpu(sidecar)
        assert variables(after, "launcher") == OPEN_MPI
        assert planned(after, BY).changes == ()


def test_an_unknown_sidecar_does_not_take_the_variables_from_the_launcher():
    after = admitted(pod(cpu("acme-agent"), cpu("launcher"), labels=LAUNCHER), BY)
    assert variables(after, "launcher") == OPEN_MPI
    assert planned(after, BY).changes == ()


def test_env_from_of_an_unknown_sidecar_causes_no_warning():
    source = [{"configMapRef": {"name": "agent"}}]
    tree = pod(cpu("launcher"), cpu("acme-agent", envFrom=source), labels=LAUNCHER)
    assert messages(planned(tree, BY)) == ()


def test_named_containers_alone_get_the_settings_of_open_mpi():
    tree = pod(cpu("a"), cpu("b"), labels=LAUNCHER, annotations={"railwright.io/containers": "b"})
    after = admitted(tree, BY)
    assert variables(after, "a") == set()
    assert variables(after, "b") >= OPEN_MPI


def test_env_from_of_the_container_that_kubectl_takes_by_default_causes_a_warning():
    source = [{"configMapRef": {"name": "settings"}}]
    tree = pod(cpu("acme-agent"), cpu("launcher", envFrom=source), labels=LAUNCHER, annotations={DEFAULT: "launcher"})
    assert "container launcher has envFrom" in messages(planned(tree, BY))[0]
    tree["metadata"]["annotations"][DEFAULT] = "gone"
    assert messages(planned(tree, BY)) == ()


def test_a_launcher_of_nothing_but_proxies_keeps_its_first_container():
    assert env(admitted(pod(cpu("envoy"), labels=LAUNCHER), BY)).keys() == OPEN_MPI


def test_a_sidecar_with_an_accelerator_or_named_by_the_user_gets_the_fabric():
    assert record(admitted(pod(gpus(1, "envoy"), cpu("c")), BY))["containers"] == ["envoy"]
    named = pod(cpu("envoy"), cpu("c"), annotations={"railwright.io/containers": "envoy"})
    assert record(admitted(named, BY))["containers"] == ["envoy"]


def test_a_container_added_between_two_calls_does_not_move_the_fabric():
    once = admitted(pod(gpus(8, "train"), cpu("other")), BY)
    between = peers.sidecar_first(once)
    between["spec"]["containers"].insert(0, cpu("linkerd-proxy"))
    again = admitting.planned(between, BY)
    assert again.containers == ("train",)
    assert again.changes == ()
