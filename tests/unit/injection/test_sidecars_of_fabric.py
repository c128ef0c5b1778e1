"""Native sidecars and scripts of a fabric, and pods that need a whole node."""

import pytest
from admitting import admitted, cpu, fabric, gpus, known, messages, planned, pod, record, refusal, skipped, view
from hypothesis import given
from hypothesis import strategies as st

from railwright.fabric import admission

BY = fabric(
    "    gpusPerNode: 8\n    wholeNode: true\n    sourceScript: {path: /v/env.sh}\n    sidecars:\n"
    "    - name: daemon\n      image: d:1\n      args: [--x]\n      env: {A: b}\n      capabilities: [NET_ADMIN]\n"
    "      hostPaths: [{path: /run/s, readOnly: false}, {path: /sys, mountPath: /hostsys}]\n"
    "      startupProbe: {exec: {command: [test, -S, /run/s/socket]}}\n"
    "    mounts: {hostPaths: [{path: /run/s}]}\n"
)
SCRIPT = ["/bin/bash", "-c", '. /v/env.sh && exec "$0" "$@"']


def find_daemon(tree):
    (daemon,) = [one for one in tree["spec"]["initContainers"] if one["name"] == "daemon"]
    return daemon


def test_a_sidecar_has_what_the_policy_says():
    tree = admitted(pod(gpus(8, command=["x"]), initContainers=[{"name": "fetch", "image": "i"}]), BY)
    assert [one["name"] for one in tree["spec"]["initContainers"]] == ["fetch", "daemon"]
    daemon = find_daemon(tree)
    mounts = {mount["mountPath"]: mount for mount in daemon.pop("volumeMounts")}
    assert daemon == {
        "name": "daemon",
        "image": "d:1",
        "restartPolicy": "Always",
        "args": ["--x"],
        "env": [{"name": "A", "value": "b"}],
        "securityContext": {"capabilities": {"add": ["NET_ADMIN"]}},
        "startupProbe": {
            "exec": {"command": ["test", "-S", "/run/s/socket"]},
            "periodSeconds": 1,
            "failureThreshold": 120,
        },
    }
    assert "readOnly" not in mounts["/run/s"]
    assert mounts["/hostsys"]["readOnly"] is True
    names = [volume["name"] for volume in tree["spec"]["volumes"]]
    assert len(names) == len({*names})
    assert {mount["name"] for mount in mounts.values()} <= {*names}


def test_the_container_and_the_sidecar_share_a_directory_of_the_node():
    tree = admitted(pod(gpus(8, command=["x"])), BY)
    own = {mount["mountPath"]: mount["name"] for mount in tree["spec"]["containers"][0]["volumeMounts"]}
    daemon = {mount["mountPath"]: mount["name"] for mount in find_daemon(tree)["volumeMounts"]}
    assert own["/run/s"] == daemon["/run/s"]


@pytest.mark.parametrize("where", ["initContainers", "containers"])
def test_the_authors_container_of_that_name_stays(where):
    own = {"name": "daemon", "image": "mine"}
    tree = pod(gpus(8, command=["x"]))
    tree["spec"].setdefault(where, []).append(own)
    after = admitted(tree, BY)
    assert own in after["spec"][where]
    assert [one["name"] for one in after["spec"].get("initContainers", [])].count("daemon") == (where != "containers")
    assert skipped(after)["sidecars.daemon"] == "the pod has a container named daemon itself"


def test_a_namespace_that_forbids_a_sidecar_rejects_the_pod():
    by = fabric("    sidecars: [{name: d, image: i, capabilities: [NET_ADMIN]}]\n")
    level = known(namespace_labels={"pod-security.kubernetes.io/enforce": "baseline"})
    assert "forbids capability NET_ADMIN, and sidecar d of fabric f needs it" in refusal(pod(), by, level)
    allowed = fabric("    sidecars: [{name: d, image: i, capabilities: [NET_BIND_SERVICE]}]\n")
    assert planned(pod(), allowed, level).changes


@given(st.lists(st.text(max_size=8), min_size=1, max_size=4), st.none() | st.lists(st.text(max_size=8), max_size=2))
def test_the_command_stays_whole_behind_the_script(command, args):
    more = {} if args is None else {"args": args}
    once = admitted(pod(gpus(8, command=command, **more)), BY)
    container = once["spec"]["containers"][0]
    assert container["command"] == [*SCRIPT, *command]
    assert container.get("args") == args
    assert planned(once, BY).changes == ()


@pytest.mark.parametrize("by", [fabric(), fabric("    sourceScript: {path: /v/env.sh}\n")], ids=["plain", "sourced"])
def test_lint_reads_the_command_behind_the_script(by):
    tree = pod(gpus(8, command=["bash", "-c", "export NCCL_IB_DISABLE=1; train"]))
    assert "N28" in [warning.code for warning in admission.plan(view(tree), by, known()).warnings]


def test_a_container_without_a_command_gets_a_warning_and_no_guess():
    tree = pod(gpus(8, args=["--x"]))
    assert "has no command, so /v/env.sh is not sourced" in messages(planned(tree, BY))[0]
    after = admitted(tree, BY)
    assert "command" not in after["spec"]["containers"][0]
    assert "sourceScript" in record(after)["skipped"]


def test_the_shell_runs_the_program_with_its_own_words(tmp_path):
    import subprocess

    script = tmp_path / "env.sh"
    script.write_text("export A=set\n")
    words = ["/bin/sh", "-c", 'printf "%s|" "$A" "$@"', "sh", "a b", "$HOME", "'"]
    command = [*SCRIPT[:2], SCRIPT[2].replace("/v/env.sh", str(script)), *words]
    assert subprocess.run(command, capture_output=True, check=True, text=True).stdout == "set|a b|$HOME|'|"
    script.unlink()
    assert subprocess.run(command, capture_output=True, check=False).returncode != 0


@pytest.mark.parametrize("container", [gpus(4), cpu()], ids=["four", "none"])
def test_a_fabric_of_one_pod_a_node_rejects_a_pod_with_fewer_accelerators(container):
    assert "of the 8 accelerators of a node" in refusal(pod(container), BY)
    assert planned(pod(gpus(8)), BY).changes
