"""The rotator beside other writers: a second rotator, one that refuses a caBundle, and one that overwrites it."""

import argparse
import asyncio
import base64
import datetime as dt
import json
import re

import msgspec
import pytest
from cryptography import x509

from certs import installation, inventory, rotation, schedules
from railwright.cli import certificates, dispatch, output
from railwright.cluster import errors, installed_names
from railwright.serving import settings

NAMESPACE = "railwright-system"
SPECS = inventory.list_specs(NAMESPACE)
SECRETS, SERVICE = (f"/api/v1/namespaces/{NAMESPACE}/{kind}" for kind in ("secrets", "services/railwright-extender"))
ADMISSION = "/apis/admissionregistration.k8s.io/v1/"
MUTATING = f"{ADMISSION}mutatingwebhookconfigurations/railwright"
VALIDATING = f"{ADMISSION}validatingwebhookconfigurations/railwright"
OTHER = base64.b64encode(b"other").decode()


class Cluster:
    """The API server's objects that the rotator reads and writes. `refused` are paths whose writes it rejects.

    Before a write, `others` may write first.
    """

    host = "https://x"

    def __init__(self) -> None:
        self.objects, self.version, self.patched, self.refused, self.overwritten = {}, 0, [], set(), ""
        self.events, self.others = [], None
        for path in (MUTATING, VALIDATING):
            service = {"namespace": NAMESPACE, "name": "railwright-webhook"}
            hooks = [{"name": "pods.railwright.io", "clientConfig": {"service": service}}]
            self.put(path, {"metadata": {"name": "railwright", "uid": "u"}, "webhooks": hooks})
        self.put(SERVICE, {"metadata": {"name": "railwright-extender"}})

    def put(self, path: str, tree: dict) -> None:
        self.version += 1
        tree["metadata"] |= {"resourceVersion": str(self.version), "generation": self.version}
        self.objects[path] = tree

    async def get(self, path, _query=None) -> bytes:
        if path not in self.objects:
            raise errors.ApiError(404, "NotFound", "", path)
        return json.dumps(self.objects[path]).encode()

    async def post(self, _path, body) -> bytes:
        self.events.append(msgspec.to_builtins(body))
        return b"{}"

    async def patch(self, path, body, content_type) -> bytes:
        others, self.others = self.others, None
        if others is not None:
            await others()
        path, changes = path.partition("?")[0], msgspec.to_builtins(body)
        if path in self.refused:
            raise errors.ApiError(403, "Forbidden", "denied", path)
        tree = json.loads(json.dumps(self.objects.get(path, {"metadata": {}, "data": {}})))
        if content_type == "application/apply-patch+yaml":  # without force
            assert not any(changes["data"].values()), "content is written by version only"
            is_current = not any(tree["data"].values())
        else:
            version = changes[0]["value"] if isinstance(changes, list) else changes["metadata"]["resourceVersion"]
            is_current = version == tree["metadata"]["resourceVersion"]
        if not is_current:
            raise errors.ApiError(409, "Conflict", "", path)
        self.patched.append(path)
        if isinstance(changes, list):
            for change in changes[1:]:
                tree["webhooks"][int(change["path"].split("/")[2])]["clientConfig"]["caBundle"] = change["value"]
            self.put(path, tree)
            if path == self.overwritten:
                self.overwrite(path)
            return b"{}"
        for key, value in (changes.get("data") or {}).items():
            tree.setdefault("data", {})[key] = value
        tree["data"] = {key: value for key, value in tree["data"].items() if value is not None}
        tree["metadata"].setdefault("annotations", {}).update(changes["metadata"].get("annotations") or {})
        self.put(path, tree)
        return json.dumps(tree).encode()

    def overwrite(self, path: str) -> None:
        """Write another caBundle, as cert-manager's cainjector does to an object with its annotation."""
        tree = json.loads(json.dumps(self.objects[path]))
        tree["webhooks"][0]["clientConfig"]["caBundle"] = OTHER
        owned = {'k:{"name":"pods.railwright.io"}': {"f:clientConfig": {"f:caBundle": {}}}}
        tree["metadata"]["managedFields"] = [
            {"manager": "cainjector", "fieldsV1": {"f:webhooks": owned}},
            {"manager": "kubectl", "fieldsV1": {"f:webhooks": {'k:{"name":"pods.railwright.io"}': {"f:name": {}}}}},
        ]
        self.put(path, tree)


class Site:
    """A rotator with clocks that only a test advances."""

    def __init__(self, cluster: Cluster | None = None) -> None:
        self.cluster, self.passed = cluster or Cluster(), dt.timedelta()
        self.rotator = installation.Rotator(
            self.cluster, NAMESPACE, (), schedules.OVERLAP, lambda: dt.datetime.now(dt.UTC) + self.passed
        )

    async def settle(self, most: int = 60) -> list[str]:
        """Rotate until nothing is due, or `most` times. Return the steps and the statuses of errors."""
        done = []
        for _ in range(most):
            try:
                result = await self.rotator.make_step()
            except errors.ClusterError as error:
                done.append(str(error.status))
                self.passed += dt.timedelta(seconds=30)
                continue
            if isinstance(result, rotation.Step):
                done.append(result.action.value)
            elif not result.soon:
                break
            else:
                self.passed += dt.timedelta(seconds=20)
        return done

    async def get_days_left(self) -> int:
        state = await installation.read_certificates(self.cluster, NAMESPACE, [spec.name for spec in SPECS])
        pairs = [stored.pair for stored in state.certificates.values()]
        ends = [x509.load_pem_x509_certificate(pair.certificate_pem).not_valid_after_utc for pair in pairs]
        return (min(ends) - dt.datetime.now(dt.UTC) - self.passed).days


@pytest.mark.parametrize("refused", [MUTATING, VALIDATING])
@pytest.mark.parametrize("days", [25, 40], ids=["due", "expired"])
async def test_certificates_are_renewed_even_if_the_api_server_rejects_a_ca_bundle(refused, days):
    site = Site()
    await site.settle()
    site.cluster.refused = {refused}
    if refused == VALIDATING or days == 25:  # of pods, with an expired certificate: no CA can be trusted any more
        site.cluster.overwrite(refused)
    site.passed += dt.timedelta(days=days)
    assert "renew" in await site.settle()
    assert await site.get_days_left() > 25


async def test_secrets_are_written_even_if_the_api_server_rejects_a_ca_bundle():
    site = Site()
    await site.settle()
    good = site.cluster.objects[MUTATING]["webhooks"][0]["clientConfig"]["caBundle"]
    secrets = [path for path in site.cluster.objects if path.endswith("-tls")]
    site.cluster.overwrite(MUTATING)
    for path in secrets:
        site.cluster.objects[path]["data"]["ca.crt"] = OTHER
    site.cluster.refused = {MUTATING}
    assert set(await site.settle(5)) == {"403"}
    assert {site.cluster.objects[path]["data"]["ca.crt"] for path in secrets} == {good}


async def test_a_ca_bundle_that_another_writer_overwrites_is_written_every_ten_seconds_and_reported(monkeypatch):
    site, pauses = Site(), []
    await site.settle()
    site.cluster.patched.clear()
    site.cluster.overwritten = MUTATING
    site.cluster.overwrite(MUTATING)

    async def sleep(seconds):
        pauses.append(seconds)
        if len(pauses) == 8:
            raise asyncio.CancelledError

    arguments = argparse.Namespace(every=dt.timedelta(seconds=3))
    watcher = certificates.Watcher(arguments, site.cluster, site.rotator)
    monkeypatch.setattr(certificates.asyncio, "sleep", sleep)
    with pytest.raises(asyncio.CancelledError):
        await watcher._rotate()
    monkeypatch.undo()
    assert pauses == [0.0, 0.0, *[10.0] * 6]
    assert site.cluster.patched.count(MUTATING) == len(pauses)
    writing = asyncio.create_task(watcher._events.run())
    for _ in range(10):
        await asyncio.sleep(0)
    writing.cancel()
    (event,) = site.cluster.events
    assert (event["reason"], event["type"]) == (installed_names.OVERWRITTEN, "Warning")
    assert event["metadata"]["namespace"] == "default"
    assert event["involvedObject"]["kind"] == "MutatingWebhookConfiguration"
    assert event["message"].startswith("cainjector overwrites the caBundle of pods.railwright.io whenever")


async def test_a_step_counts_as_repeated_until_ten_minutes_pass_without_a_step():
    watcher = certificates.Watcher(argparse.Namespace(), Cluster(), Site().rotator)
    publish, renew = (rotation.Step(action, "because") for action in (rotation.Action.PUBLISH, rotation.Action.RENEW))
    made = [(publish, 0), (renew, 1), (publish, 5), (publish, 10), (publish, 700), (renew, 701)]
    assert [watcher.count_repeats(step, now) for step, now in made] == [0, 0, 1, 2, 0, 0]


async def test_an_unexpected_error_of_the_rotator_is_logged_and_ends_the_process_with_1(monkeypatch, caplog):
    rotator = Site().rotator

    async def fail():
        raise ValueError("unforeseen")

    monkeypatch.setattr(rotator, "make_step", fail)
    monkeypatch.setattr(asyncio.get_running_loop(), "add_signal_handler", lambda *_: None)  # those of the test run stay
    watcher = certificates.Watcher(argparse.Namespace(every=dt.timedelta(seconds=3)), Cluster(), rotator)
    assert await watcher.run(settings.Address("127.0.0.1", 0)) == 1
    (record,) = [record for record in caplog.records if record.levelname == "CRITICAL"]
    assert record.message == "a task failed, so this process ends"
    assert "unforeseen" in record.exc_text


async def test_a_single_run_shows_on_a_terminal_how_long_it_waits_and_why(monkeypatch, capsys):
    arguments = dispatch.build_parser().parse(["certs", "rotate", "--overlap=2s", "-n", "railwright-system"])[1]
    cluster = Cluster()
    await Site(cluster).settle()
    cluster.put(f"{SECRETS}/railwright-ca", {"metadata": {}, "data": {}})
    monkeypatch.setattr(output, "is_animated", lambda _stream=None: True)
    assert await certificates.rotate_once(arguments, cluster) == output.OK
    out, err = capsys.readouterr()
    assert [line.partition(":")[0] for line in out.splitlines()][:4] == ["trust", "prepare", "publish", "activate"]
    assert re.search(r"waiting until \d\d:\d\d:\d\d UTC: clients need time to read the next CA", err)


@pytest.mark.parametrize(
    ("options", "has_extender", "is_named"),
    [(["--renew-ca"], True, True), (["--renew-ca"], False, False), ([], True, False)],
)
async def test_a_single_run_with_a_new_ca_prints_how_the_schedulers_of_the_extender_get_it(
    capsys, options, has_extender, is_named
):
    arguments = dispatch.build_parser().parse(["certs", "rotate", *options, "-n", "railwright-system"])[1]
    cluster = Cluster()
    await Site(cluster).settle()
    if not has_extender:
        del cluster.objects[SERVICE]
    assert await certificates.rotate_once(arguments, cluster) == output.OK
    last = capsys.readouterr().out.splitlines()[-1]
    command = (
        r"kubectl -n railwright-system get secret railwright-extender-tls -o jsonpath='{.data.ca\.crt}' | base64 -d"
    )
    assert (last.endswith(f"need the new CA bundle, and a restart: {command}"), last.startswith("next: ")) == (
        is_named,
        not is_named,
    )


async def test_the_run_that_completes_an_interrupted_change_of_the_ca_says_how_the_schedulers_get_it(capsys):
    arguments = dispatch.build_parser().parse(["certs", "rotate", "--overlap=1s", "-n", "railwright-system"])[1]
    cluster = Cluster()
    site = Site(cluster)
    await site.settle()
    assert (await site.rotator.make_step(renew_ca=True)).action is rotation.Action.PREPARE
    assert await certificates.rotate_once(arguments, cluster) == output.OK
    out, _ = capsys.readouterr()
    assert "schedulers that verify the extender (kube-scheduler, Volcano) need the new CA bundle" in out


def read_secrets(cluster: Cluster) -> dict[str, dict]:
    return {path.rpartition("/")[2]: tree["data"] for path, tree in cluster.objects.items() if "data" in tree}


@pytest.mark.parametrize("is_shipped", [True, False], ids=["empty Secrets", "no Secrets"])
async def test_only_one_of_two_rotators_that_start_at_once_writes_the_ca(is_shipped):
    cluster = Cluster()
    first, second = Site(cluster), Site(cluster)
    for name in inventory.SECRETS.values() if is_shipped else ():
        cluster.put(f"{SECRETS}/{name}", {"data": {}, "metadata": {"name": name}})
    held = {}

    async def be_faster() -> None:
        await second.rotator.make_step()
        held.update(read_secrets(cluster))

    cluster.others = be_faster
    with pytest.raises(errors.ApiError) as raised:
        await first.rotator.make_step()
    assert raised.value.status in installation.CONFLICTS
    assert held["railwright-ca"]["next.crt"]
    assert read_secrets(cluster) == held, "the first has changed nothing"
    await first.settle()
    assert read_secrets(cluster)["railwright-ca"]["tls.crt"] == held["railwright-ca"]["next.crt"], "it goes on with it"


async def test_the_extenders_certificates_are_issued_only_while_it_is_installed():
    cluster = Cluster()
    service, site = cluster.objects.pop(SERVICE), Site(cluster)
    await site.settle()
    assert set(read_secrets(cluster)) == {"railwright-ca", "railwright-webhook-tls"}, "Helm would not take over others"
    cluster.put(SERVICE, service)
    await site.settle()
    assert set(read_secrets(cluster)) == set(inventory.SECRETS.values())
    del cluster.objects[f"{SECRETS}/railwright-extender-tls"]
    await site.settle()
    assert read_secrets(cluster)["railwright-extender-tls"]["tls.crt"], "a deleted Secret is made again"


async def test_the_rotator_drops_the_metric_of_a_certificate_that_is_no_longer_issued():
    cluster = Cluster()
    site = Site(cluster)
    watcher = certificates.Watcher(argparse.Namespace(), cluster, site.rotator)
    for servers in ({"webhook", "extender", "kube-scheduler"}, {"webhook"}):
        await site.settle()
        watcher._set_gauges(site.rotator.state)
        (metric,) = watcher._left.collect()
        assert {sample.labels["certificate"] for sample in metric.samples} - {"ca"} == servers
        cluster.objects.pop(SERVICE, None)
