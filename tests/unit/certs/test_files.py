"""Certificates on disk: modes, atomicity, remaining files after a failure."""

import os
import pathlib
import stat

import pytest
import yaml

from certs import files, pki

PAIR = files.name_files("webhook", pki.Pair(b"certificate", b"key"))


def test_only_the_owner_reads_a_key_under_any_umask(tmp_path):
    old = os.umask(0)
    try:
        files.write_changed(tmp_path / "new" / "out", PAIR)
    finally:
        os.umask(old)
    out = tmp_path / "new" / "out"
    assert (out / "webhook.crt").read_bytes() == b"certificate"
    assert stat.S_IMODE((out / "webhook.key").stat().st_mode) == 0o600
    assert stat.S_IMODE(out.stat().st_mode) == 0o700
    assert stat.S_IMODE((out / "webhook.crt").stat().st_mode) == 0o644


def test_only_changed_files_are_written_and_an_open_one_keeps_its_old_content(tmp_path):
    assert files.write_changed(tmp_path, PAIR) == ["webhook.key", "webhook.crt"]
    assert files.write_changed(tmp_path, PAIR) == []
    with (tmp_path / "webhook.key").open("rb") as reader:
        assert files.write_changed(tmp_path, {**PAIR, "webhook.key": b"key 2"}) == ["webhook.key"]
        assert reader.read() == b"key"
    assert (tmp_path / "webhook.key").read_bytes() == b"key 2"


def test_a_failed_write_leaves_the_old_file_and_no_key_in_a_temporary_one(tmp_path, monkeypatch):
    def fail(source, target):
        raise OSError(28, "No space left on device", str(target))

    files.write_changed(tmp_path, PAIR)
    monkeypatch.setattr(pathlib.Path, "replace", fail)
    with pytest.raises(OSError, match=r"webhook\.key"):
        files.write_changed(tmp_path, {**PAIR, "webhook.key": b"key 2"})
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == PAIR


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
