"""Certificates on disk: modes, atomicity, remaining files after a failure."""

import os
import pathlib
import stat

import pytest
import yaml

from certs import files, pki

PAIR = pki.Pair(b"certificate", b"key")


def test_a_pair_comes_back_as_written(tmp_path):
    files.write(tmp_path / "new" / "folder", "webhook", PAIR)
    assert files.read(tmp_path / "new" / "folder", "webhook") == PAIR


def test_only_the_owner_reads_a_key_under_any_umask(tmp_path):
    old = os.umask(0)
    try:
        files.write(tmp_path / "out", "webhook", PAIR)
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "out" / "webhook.key").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "out" / "webhook.crt").stat().st_mode) == 0o644


def test_a_certificate_without_its_key_is_not_read(tmp_path):
    files.write(tmp_path, "webhook", PAIR)
    (tmp_path / "webhook.key").unlink()
    assert files.read(tmp_path, "webhook") is None


def test_an_open_file_keeps_its_old_content(tmp_path):
    files.write(tmp_path, "webhook", PAIR)
    with (tmp_path / "webhook.key").open("rb") as reader:
        files.write(tmp_path, "webhook", pki.Pair(b"certificate 2", b"key 2"))
        assert reader.read() == b"key"
    assert files.read(tmp_path, "webhook") == pki.Pair(b"certificate 2", b"key 2")


def test_a_failed_write_leaves_the_old_file_and_no_key_in_a_temporary_one(tmp_path):
    (tmp_path / "webhook.key").mkdir()  # a rename onto a folder fails
    with pytest.raises(OSError, match=r"webhook\.key"):
        files.write(tmp_path, "webhook", PAIR)
    assert [path.name for path in tmp_path.iterdir()] == ["webhook.key"]


PLACE = pathlib.PurePosixPath("/etc/kubernetes/railwright")


def test_both_admission_plugins_read_the_kubeconfig_by_an_absolute_path():
    document = yaml.safe_load(files.build_configuration(PLACE))
    assert document["apiVersion"] == "apiserver.config.k8s.io/v1"
    plugins = {plugin["name"]: plugin["configuration"] for plugin in document["plugins"]}
    assert set(plugins) == {"MutatingAdmissionWebhook", "ValidatingAdmissionWebhook"}
    for configuration in plugins.values():
        assert (configuration["kind"], configuration["kubeConfigFile"]) == (
            "WebhookAdmissionConfiguration",
            f"{PLACE}/kubeconfig.yaml",
        )


def test_the_client_certificate_is_configured_for_the_webhooks_host_only():
    users = [files.format_user("railwright-system"), "127.0.0.1:9443"]
    document = yaml.safe_load(files.build_kubeconfig(users, PLACE / "apiserver.crt", PLACE / "apiserver.key"))
    assert [user["name"] for user in document["users"]] == [
        "railwright-webhook.railwright-system.svc",  # no port: it is called on 443
        "127.0.0.1:9443",
    ]
    for cluster_user in document["users"]:
        assert cluster_user["user"] == {
            "client-certificate": f"{PLACE}/apiserver.crt",  # by path: the API server reads it again
            "client-key": f"{PLACE}/apiserver.key",
        }
