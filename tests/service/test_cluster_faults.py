"""Every command against every cluster that cannot be used: one sentence with the fix, and never a library's words."""

import json
import pathlib
import re

import faulty_clusters
import processes
import pytest
import varied_clusters
import yaml

from railwright.cli.__main__ import main
from railwright.cluster import client as clients

INTERNAL = re.compile(r"\b[A-Z]\w+(Error|Exception)\b|0x[0-9a-f]+|/api/|/apis/|Traceback|<html|object at")
POLICY, LOG, OUT, JOB = "{policy}", "{log}", "{out}", "{job}"
COMMANDS = (
    ("check",),
    ("check", "-o", "json"),
    ("check", "--pre"),
    ("gangs",),
    ("gangs", "--policy", POLICY, "-o", "json"),
    ("gangs", "llama", "-n", "prod"),
    ("gangs", "-w"),
    ("fabric",),
    ("version",),
    ("explain", JOB),
    ("lint", JOB),
    ("verify", "log", LOG, "--fabric", "roce"),
    ("explain", "pod/llama-0", "-n", "prod"),
    ("certs", "rotate"),
    ("certs", "issue", "--secrets"),
    ("certs", "admission-config", "--out", OUT),
)
CLUSTERS = (*faulty_clusters.ANSWERS, *faulty_clusters.CONNECTIONS)
# Each fault is met by `check`, which goes on after an error, and by `gangs`, which ends with the first. Each command
# meets the common ones.
READERS = (("check",), ("gangs",))
COMMON_CLUSTERS = ("a web page", "an account without rights", "a cluster without railwright", "refused")
COMMON_MISTAKES = ("no file",)
EMPTY = {  # what is said of a cluster that can be read, and has nothing of ours
    ("check",): 1,
    ("check", "-o", "json"): 1,
    ("check", "--pre"): 0,
    ("version",): 0,
    ("gangs", "--policy", POLICY, "-o", "json"): 0,
}
FIXES = re.compile(r"; |\bfix: |, or ")  # what separates a cause from what to do


@pytest.fixture
def cluster_file(faulty_clusters, tmp_path, monkeypatch):
    """`cluster_file(name)`: the path of a kubeconfig. Commands wait only shortly for the cluster that never answers."""
    monkeypatch.setattr("railwright.cli.dashboard._PROMPT_SECONDS", 60.0)  # a plugin may start slowly, and then fail

    def write(name):
        if name == "silent":
            monkeypatch.setattr(clients, "CALL_SECONDS", 0.3)
            monkeypatch.setattr("railwright.cli.checking.start._CALL_SECONDS", 0.3)
            monkeypatch.setattr("railwright.cli.linting._SECONDS", 0.3)
            monkeypatch.setattr("railwright.cli.explanation.pod.SECONDS", 0.3)
        return faulty_clusters.kubeconfig(name, tmp_path)

    return write


@pytest.fixture
def run(tmp_path, capsys):
    """`run(command, kubeconfig)`: (exit code, stdout, stderr)."""
    (tmp_path / "policy.yaml").write_text(varied_clusters.POLICY)
    (tmp_path / "nccl.log").write_text("NCCL INFO nothing\n")
    job = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}]}}
    (tmp_path / "job.yaml").write_text(json.dumps(job))
    names = {
        "policy": tmp_path / "policy.yaml",
        "log": tmp_path / "nccl.log",
        "out": tmp_path / "out",
        "job": tmp_path / "job.yaml",
    }

    def once(command, kubeconfig):
        code = main([*(word.format(**names) for word in command), "--kubeconfig", kubeconfig])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return once


def pair(commands, readers, faults, common):
    """Return every fault with the readers, and every command with the common faults."""
    pairs = {(command, fault) for command in commands for fault in common}
    pairs |= {(command, fault) for command in readers for fault in faults}
    return [pytest.param(*pair, id=f"{' '.join(pair[0])}-{pair[1]}") for pair in sorted(pairs)]


@pytest.mark.parametrize(("command", "cluster"), pair(COMMANDS, READERS, CLUSTERS, COMMON_CLUSTERS))
def test_an_unusable_cluster_is_one_sentence_and_exit_code_two(run, cluster_file, command, cluster):
    code, out, err = run(command, cluster_file(cluster))
    assert not INTERNAL.search(out + err), out + err
    assert FIXES.search(out + err) or cluster == "a cluster without railwright", out + err
    readable = EMPTY.get(command, 2) if cluster == "a cluster without railwright" else 2
    assert code == readable, out + err
    if command[0] == "check" or readable == 0:
        return
    assert re.fullmatch(r"client +\S+\n", out) if command[0] == "version" else out == ""
    assert err.startswith("railwright")
    assert len(err.splitlines()) == 1, err


@pytest.mark.parametrize(
    ("command", "mistake"),
    pair([*COMMANDS, ("dashboard",)], READERS[1:], faulty_clusters.KUBECONFIGS, COMMON_MISTAKES),
)
def test_a_mistake_in_a_kubeconfig_is_named_with_its_fix(run, cluster_file, command, mistake):
    path = cluster_file(mistake)
    code, out, err = run(command, path)
    assert code == 2
    assert re.fullmatch(r"client +\S+\n", out) if command[0] == "version" else out == ""
    assert path in err
    assert not INTERNAL.search(err), err
    assert FIXES.search(err), err
    assert len(err.splitlines()) == 1, err


@pytest.mark.parametrize(("server", "mistake"), [("webhook", "no file"), ("extender", "a plugin that is missing")])
async def test_a_server_prints_the_same_message_before_it_starts(faulty_clusters, tmp_path, server, mistake):
    path = faulty_clusters.kubeconfig(mistake, tmp_path)
    code, out, err = await processes.run(server, "--plain-http", "--listen", "127.0.0.1:0", "--kubeconfig", path)
    assert (code, out) == (2, "")
    assert path in err
    assert not INTERNAL.search(err), err


@pytest.mark.parametrize("mistake", ["a plugin that babbles"])
async def test_no_output_of_a_library_is_shown(faulty_clusters, tmp_path, mistake):
    path = faulty_clusters.kubeconfig(mistake, tmp_path)
    code, out, err = await processes.run("gangs", "--kubeconfig", path)
    assert (code, out) == (2, "")
    assert err.startswith(f"railwright: kubeconfig {path}: "), err
    assert err.count("\n") == 1, err


@pytest.mark.parametrize("fault", ["refused", "silent", "hangs up", "untrusted", "a web page", "unknown host"])
def test_an_unusable_extender_is_reported_in_the_same_words(cluster_file, capsys, fault):
    tree = yaml.safe_load(pathlib.Path(cluster_file(fault)).read_text())
    url = tree["clusters"][0]["cluster"]["server"]
    code = main(["explain", "pod", "prod/llama-0", "--extender", url, "--token", "t"] if "127" in url else
                ["explain", "pod", "prod/llama-0", "--extender", url])  # fmt: skip
    captured = capsys.readouterr()
    assert (code, captured.out) == (2, "")
    assert not INTERNAL.search(captured.err), captured.err
    assert "; " in captured.err


SAID = {
    "refused": "nothing listens at http://127.0.0.1:",
    "silent": "does not answer in time",
    "hangs up": "closes the connection before it has answered",
    "no HTTP": "does not answer as an HTTP server does",
    "unknown host": "the name nowhere.invalid cannot be resolved",
    "untrusted": "is not the CA that signed it",
    "wrong name": "tls-server-name",
    "out of date": "certificate has expired; renew the API server's certificate",
    "plain behind https": "does not speak TLS",
    "a web page": "not as a Kubernetes API server does",
    "another program's JSON": "not as a Kubernetes API server does",
    "an expired token": "does not accept the credentials (401 Unauthorized); the credentials have expired",
    "a cluster without railwright": "there is no ConfigMap railwright-system/railwright-policy",
    "no file": "does not exist; give --kubeconfig FILE",
    "a directory": "is a directory",
    "a binary file": "is not UTF-8 text",
    "broken YAML": "is not valid YAML in line",
    "a proxy that is no address": "`proxy-url` of cluster prod is not the address of an HTTP proxy",
    "a server with a password": "has a user name or password in it; remove it there",
    "a token file that is a folder": "token file / of user dev is a directory",
    "an auth-provider": "auth-provider gcp of user dev cannot be used",
    "a plugin with one argument": "`args:` in exec of user dev is not a list of texts",
    "a plugin without credentials": "does not print a valid ExecCredential",
    "a context that is missing": "current-context staging is not in it; choose one that is there: prod",
    "a cluster that is missing": "context prod names cluster prod, which is not in it",
    "no server": "cluster prod has no `server:`",
    "a CA that is missing": "certificate-authority nowhere.crt of cluster prod: no such file or directory",
    "a plugin that is missing": "credential plugin no-such-credential-plugin of user dev is not installed",
    "a plugin that fails": "of user dev ends with code 1: log in again; run it by hand to see why",
}


@pytest.mark.parametrize("fault", SAID)
def test_the_printed_cause_is_that_of_the_connection(run, cluster_file, fault):
    _, _, err = run(("gangs",), cluster_file(fault))
    assert SAID[fault] in err


@pytest.mark.parametrize("users", [[{"name": "dev", "user": {}}], []])
def test_missing_credentials_are_not_called_expired(run, cluster_file, users):
    path = pathlib.Path(cluster_file("an expired token"))
    tree = yaml.safe_load(path.read_text())
    if not users:
        del tree["contexts"][0]["context"]["user"]
    path.write_text(yaml.safe_dump({**tree, "users": users}))
    _, _, err = run(("gangs",), str(path))
    assert "does not accept requests without credentials (401 Unauthorized); the kubeconfig has none for the" in err
    assert "log in, or add them to it" in err


def test_a_kubeconfig_without_contexts_has_none_to_choose(tmp_path, capsys):
    kubeconfig = tmp_path / "config"
    kubeconfig.write_text("apiVersion: v1\nkind: Config\n")
    assert main(["gangs", "--kubeconfig", str(kubeconfig), "--context", "nope"]) == 2
    assert "has no contexts; give the kubeconfig of a cluster" in capsys.readouterr().err


def test_a_missing_context_is_named_with_the_existing_ones(faulty_clusters, tmp_path, capsys):
    kubeconfig = faulty_clusters.kubeconfig("a tenant", tmp_path)
    for command in ("check", "gangs", "fabric"):
        assert main([command, "--kubeconfig", kubeconfig, "--context", "nope"]) == 2
        assert "there is no context nope; choose one that is there: prod" in capsys.readouterr().err


def test_check_is_not_green_for_an_account_that_sees_nothing(run, cluster_file):
    code, out, _ = run(("check", "-o", "json"), cluster_file("a tenant"))
    document = json.loads(out)
    assert (code, document["ok"]) == (2, False)
    assert document["counts"]["fail"] == 0, "nothing is known to be wrong"
