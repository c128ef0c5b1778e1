"""Every command against every unusable cluster prints one sentence with the fix, and no message of a library."""

import json
import re

import faulty_clusters
import processes
import pytest
import varied_clusters

from railwright.cli.__main__ import main

INTERNAL = re.compile(r"\b[A-Z]\w+(Error|Exception)\b|0x[0-9a-f]+|/api/|/apis/|Traceback|<html|object at")
POLICY, JOB = "{policy}", "{job}"
COMMANDS = (
    ("check",),
    ("check", "-o", "json"),
    ("gangs",),
    ("gangs", "--policy", POLICY, "-o", "json"),
    ("fabric",),
    ("explain", JOB),
    ("lint", JOB),
    ("explain", "pod/llama-0", "-n", "prod"),
    ("certs", "rotate"),
)
CLUSTERS = (*faulty_clusters.ANSWERS, *faulty_clusters.CONNECTIONS)
# Each fault is met by `check`, which goes on after an error, and by `gangs`, which ends with the first. Each command
# meets the common ones.
READERS = (("check",), ("gangs",))
COMMON_CLUSTERS = ("a web page", "an account without rights", "a cluster without railwright", "refused")
COMMON_MISTAKES = ("no file",)
SHORT_WAIT = {"silent": ("--request-timeout", "300ms")}  # options for this cluster
EMPTY = {  # what is said of a cluster that can be read, and has nothing of ours
    ("check",): 1,
    ("check", "-o", "json"): 1,
    ("lint", JOB): 0,  # by the rules that need no fabric
    ("gangs", "--policy", POLICY, "-o", "json"): 0,
}
FIXES = re.compile(r"; |\bfix: |, or ")  # what separates a cause from what to do

SAID = {  # part of the cause that is printed
    "refused": "cannot reach http://127.0.0.1:",
    "silent": ": no answer in time; check that the cluster runs",
    "hangs up": "; check that the cluster runs",  # Server disconnected, or connection reset by peer
    "no HTTP": ": Bad status line: Expected HTTP/",
    "unknown host": "cannot reach https://nowhere.invalid:6443: ",
    "untrusted": "its certificate is not trusted: unable to get local issuer certificate; check",
    "wrong name": "certificate is not valid for '127.0.0.1'",
    "out of date": "its certificate is not trusted: certificate has expired",
    "plain behind https": ": [SSL: ",
    "a web page": "not as a Kubernetes API server does",
    "another program's JSON": "not as a Kubernetes API server does",
    "an expired token": "answers 401: Unauthorized; the credentials are missing, expired, or those of",
    "a cluster without railwright": "there is no ConfigMap railwright-system/railwright-policy",
    "no file": "does not exist; give --kubeconfig FILE",
    "a directory": "is a directory",
    "broken YAML": ", line 3, column ",
    "a proxy that is no address": "`proxy-url` of its cluster is no address; write `server: https://HOST:PORT",
    "a server with a password": "`server: http://127.0.0.1:1` or `proxy-url` of its cluster is no address",
    "a context that is missing": "Expected object with name staging in",
    "a cluster that is missing": "Expected object with name prod in",
    "a CA that is missing": "nowhere.crt; correct it (kubectl config view",
    "a CA that is no certificate": "its CA or client certificate cannot be used: PEM is expected",
    "a plugin that is missing": "no-such-credential-plugin: no such file or directory",
    "a plugin that fails": "exec: process returned 1. log in again; ",
    "a plugin that crashes": "exec: process returned 1; ",
}


@pytest.fixture(scope="module")
def clusters(tmp_path_factory):
    """Yield all unusable clusters, running."""
    with faulty_clusters.Clusters(tmp_path_factory.mktemp("faulty")) as running:
        yield running


@pytest.fixture
def cluster_file(clusters, tmp_path):
    """Return `cluster_file(name)`: the path of a kubeconfig."""
    return lambda name: clusters.kubeconfig(name, tmp_path)


@pytest.fixture
def run(tmp_path, capsys):
    """Return `run(command, kubeconfig)`: run a command; return exit code, stdout and stderr."""
    (tmp_path / "policy.yaml").write_text(varied_clusters.POLICY)
    job = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}]}}
    (tmp_path / "job.yaml").write_text(json.dumps(job))
    names = {"policy": tmp_path / "policy.yaml", "job": tmp_path / "job.yaml"}

    def run_once(command, kubeconfig):
        code = main([*(word.format(**names) for word in command), "--kubeconfig", kubeconfig])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run_once


def pair(commands, readers, faults, common):
    """Return every fault with the readers, and every command with the common faults."""
    pairs = {(command, fault) for command in commands for fault in common}
    pairs |= {(command, fault) for command in readers for fault in faults}
    return [pytest.param(*pair, id=f"{' '.join(pair[0])}-{pair[1]}") for pair in sorted(pairs)]


@pytest.mark.parametrize(("command", "cluster"), pair(COMMANDS, READERS, CLUSTERS, COMMON_CLUSTERS))
def test_an_unusable_cluster_is_one_sentence_and_exit_code_two(run, cluster_file, command, cluster):
    code, out, err = run((*command, *SHORT_WAIT.get(cluster, ())), cluster_file(cluster))
    assert not INTERNAL.search(out + err), out + err
    assert FIXES.search(out + err) or cluster == "a cluster without railwright", out + err
    is_readable = cluster == "a cluster without railwright"
    is_readable |= (command, cluster) == (("lint", JOB), "an account without rights")
    readable = EMPTY.get(command, 2) if is_readable else 2
    assert code == readable, out + err
    if command[0] == "check" or readable == 0:
        return
    assert not out
    assert err.startswith("railwright")
    assert len(err.splitlines()) == 1, err
    if command == ("gangs",):
        assert SAID.get(cluster, "") in err


@pytest.mark.parametrize(
    ("command", "mistake"), pair([*COMMANDS, ("dashboard",)], READERS[1:], faulty_clusters.KUBECONFIGS, COMMON_MISTAKES)
)
def test_a_mistake_in_a_kubeconfig_is_named_with_its_fix(run, cluster_file, command, mistake):
    path = cluster_file(mistake)
    code, out, err = run(command, path)
    assert code == 2
    assert not out
    assert path in err
    assert not INTERNAL.search(err), err
    assert FIXES.search(err), err
    assert len(err.splitlines()) == 1, err
    assert SAID.get(mistake, "") in err


@pytest.mark.parametrize(("server", "mistake"), [("webhook", "no file"), ("extender", "a plugin that is missing")])
async def test_a_server_with_an_unusable_kubeconfig_prints_one_message_and_exits_with_2(
    clusters, tmp_path, server, mistake
):
    path = clusters.kubeconfig(mistake, tmp_path)
    code, out, err = await processes.run(server, "--plain-http", "--listen", "127.0.0.1:0", "--kubeconfig", path)
    assert (code, out) == (2, "")
    assert path in err
    assert not INTERNAL.search(err), err


def test_check_does_not_pass_for_an_account_without_rights(run, cluster_file):
    code, out, _ = run(("check", "-o", "json"), cluster_file("a tenant"))
    document = json.loads(out)
    assert (code, document["ok"]) == (2, False)
    assert document["counts"]["fail"] == 0, "nothing is known to be wrong"
