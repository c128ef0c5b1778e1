"""The policy in force: the last valid one stays, also after a restart of all replicas."""

import asyncio
import json

import pytest

from railwright.cluster import errors, last_policy, policies, sources
from railwright.fabric import views

GOOD = "apiVersion: railwright.io/v1alpha1\nfabrics: {f: {transport: tcp}}\n"
BAD, OTHER = GOOD.replace("tcp", "tpc"), GOOD.replace("f:", "g:")


class ApiServer:
    """The ConfigMap with the copy. `refused` are the errors of the next requests to read it."""

    host = "http://127.0.0.1"

    def __init__(self, text: str = "", version: str = "", uid: str = "u", refused: tuple[int, ...] = ()) -> None:
        annotations = {"railwright.io/policy-version": version, "railwright.io/policy-uid": uid} if version else {}
        data = {"policy.yaml": text} if text else None
        self.copy: dict = {"metadata": {"resourceVersion": "1", "annotations": annotations}, "data": data}
        self.refused = list(refused)
        self.written: list[tuple[str, str]] = []
        self.conflicts = 0

    async def get(self, path: str) -> bytes:
        if self.refused:
            raise errors.ApiError(self.refused.pop(0), "", "", path)
        return json.dumps(self.copy).encode()

    async def patch(self, path: str, body: dict, content_type: str) -> bytes:
        assert (path.rpartition("/")[2], content_type) == ("railwright-last-policy", "application/merge-patch+json")
        assert body["metadata"]["resourceVersion"] == self.copy["metadata"]["resourceVersion"]
        if self.conflicts:
            self.conflicts -= 1
            raise errors.ApiError(409, "Conflict", "", path)
        self.copy = body
        self.written.append(
            (body["metadata"]["annotations"]["railwright.io/policy-version"], body["data"]["policy.yaml"])
        )
        return b"{}"


def build_config_map(text: str, version: str = "9", uid: str = "u") -> views.ConfigMap:
    metadata = views.ObjectMeta(name="railwright-policy", uid=uid, resource_version=version)
    return views.ConfigMap(metadata=metadata, data={"policy.yaml": text})


def test_the_last_valid_policy_stays_in_force_after_an_invalid_or_deleted_one():
    origin = sources.Sources(policies.PolicyStore(), None)
    origin.store.replace([])
    assert origin.find_policy_problem() == (
        "no valid policy yet: not found; create ConfigMap railwright-policy in namespace railwright-system with the"
        " key policy.yaml"
    )
    origin.store.replace([build_config_map(GOOD)])
    assert origin.find_policy_problem() == ""
    good = origin.store.current
    origin.store.upsert(build_config_map(BAD))
    assert (origin.store.current, origin.store.valid) == (good, False)
    assert "fabrics.f.transport" in str(origin.store.errors[0])
    origin.store.remove(build_config_map(""))
    assert (origin.store.current, origin.store.valid) == (good, False)
    assert origin.store.errors[0].message == "the policy was deleted; create it again"
    assert origin.find_policy_problem() == "", "the last good one is in force"
    origin.store.upsert(build_config_map(OTHER))
    assert (origin.store.valid, origin.store.errors) == (True, ())


async def start(cluster: ApiServer, text: str | None) -> policies.PolicyStore:
    """Return the store of a server that has started while the policy has this text; None without a policy."""
    store = policies.PolicyStore()
    store.last_valid = await last_policy.wait_for_copy(cluster)
    store.replace([] if text is None else [build_config_map(text)])
    return store


async def test_a_server_that_starts_with_an_invalid_policy_uses_the_last_valid_one_and_logs_that(caplog):
    store = await start(ApiServer(GOOD), BAD)
    (record,) = caplog.records
    assert record.message == "the policy is invalid; the last valid one is in force"
    assert record.fields["copy"] == "railwright-last-policy"
    assert "f.transport" in record.fields["errors"][0]
    assert store.current.digest == policies.read(GOOD).digest
    assert not store.valid
    assert "f.transport" in str(store.errors[0]), "the errors are still reported"
    store.upsert(build_config_map(OTHER))
    assert (store.current.digest, store.valid) == (policies.read(OTHER).digest, True)
    store.upsert(build_config_map(BAD))
    assert len(caplog.records) == 1, "the copy is not used any more"


@pytest.mark.parametrize("text", [None, OTHER])
async def test_the_stored_copy_is_not_used_for_a_valid_or_deleted_policy(text, caplog):
    store = await start(ApiServer(GOOD), text)
    assert caplog.records == []
    assert store.current is None if text is None else "g" in store.current.document.fabrics


@pytest.mark.parametrize(
    "cluster", [ApiServer(), ApiServer(BAD), ApiServer(GOOD, refused=(404,)), ApiServer(GOOD, refused=(403,) * 99)]
)
async def test_without_a_valid_copy_that_can_be_read_no_policy_is_in_force(cluster, monkeypatch):
    monkeypatch.setattr(last_policy, "_READ_AGAIN_SECONDS", 0.0)
    assert (await start(cluster, BAD)).current is None


@pytest.mark.parametrize("refused", [(503, 429), (503, 503, 503, 503, 503, 403, 403)], ids=["busy", "starts"])
async def test_reading_the_stored_copy_is_retried_until_the_api_server_allows_it(refused, monkeypatch):
    monkeypatch.setattr(last_policy, "_READ_AGAIN_SECONDS", 0.0)
    assert (await start(ApiServer(GOOD, refused=refused), BAD)).current is not None


async def write(cluster: ApiServer, *seen: views.ConfigMap) -> None:
    """Run a webhook that sees these versions of the policy."""
    store = policies.PolicyStore()
    writing = asyncio.create_task(last_policy.keep_copy(cluster, store))
    for config_map in seen:
        store.upsert(config_map)
        for _ in range(20):
            await asyncio.sleep(0)
    writing.cancel()


async def test_a_valid_policy_is_stored_once_and_an_invalid_one_never(monkeypatch):
    monkeypatch.setattr(last_policy, "_WRITE_AGAIN_SECONDS", 0.0)
    cluster = ApiServer(refused=(503,))
    await write(cluster, build_config_map(GOOD, "9"))
    assert cluster.written == [("9", GOOD)]
    cluster.copy["metadata"]["resourceVersion"] = "2"
    await write(cluster, build_config_map(GOOD, "10"), build_config_map(BAD, "11"))
    assert len(cluster.written) == 1


async def test_a_replica_that_lags_behind_does_not_replace_a_newer_copy():
    cluster = ApiServer(GOOD, "100")
    await write(cluster, build_config_map(OTHER, "99"))
    assert cluster.written == []
    await write(cluster, build_config_map(OTHER, "101"))
    assert [version for version, _ in cluster.written] == ["101"]


async def test_a_copy_of_another_policy_object_is_always_replaced():
    for uid in ("of-a-backup", ""):
        cluster = ApiServer(GOOD, "90000000", uid)
        await write(cluster, build_config_map(OTHER, "99", "now"))
        assert cluster.written == [("99", OTHER)]
        cluster.copy["metadata"]["resourceVersion"] = "2"
        await write(cluster, build_config_map(GOOD, "98", "now"))
        assert len(cluster.written) == 1


async def test_a_policy_is_stored_although_the_first_write_meets_a_conflict():
    cluster = ApiServer()
    cluster.conflicts = 1
    await write(cluster, build_config_map(GOOD))
    assert len(cluster.written) == 1
