"""The files by which an API server shows who it is."""

import pathlib

import yaml

from certs import files

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
