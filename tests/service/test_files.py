"""Sources that are files: a policy and a snapshot, read when a server starts."""

import pytest
from api_stub import Cache

from railwright.cluster import errors, reflector, resources, sources

POLICY = "apiVersion: railwright.io/v1alpha1\nfabrics: {one: {transport: tcp}}\n"
NODES = "kind: Node\nmetadata: {name: a}\n---\nkind: Node\nmetadata: {name: b}\n"


async def connect(folder, policy: str = POLICY, snapshot: str | bytes = NODES):
    """Return the sources of these files, and the cache of nodes."""
    (folder / "p.yaml").write_text(policy)
    (folder / "s.yaml").write_bytes(snapshot if isinstance(snapshot, bytes) else snapshot.encode())
    cache = Cache()
    watches = [reflector.WatchSpec(resources.NODES, cache)]
    files = {"policy": folder / "p.yaml", "snapshot": folder / "s.yaml"}
    return await sources.connect(kubeconfig=None, watches=watches, **files), cache


async def test_a_server_has_the_policy_and_the_objects_of_its_files(tmp_path):
    origin, cache = await connect(tmp_path)
    assert list(origin.store.current.document.fabrics) == ["one"]
    assert set(cache.objects) == {"a", "b"}
    assert (origin.find_policy_problem(), origin.find_cache_problem(), origin.tasks) == ("", "", [])


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({"policy": POLICY.replace("tcp", "tpc")}, "p.yaml:2: fabrics.one.transport: .* did you mean tcp"),
        ({"snapshot": ""}, "--snapshot .*s.yaml: is empty"),
        ({"snapshot": "kind: Node\nmetadata: {name: [c]}\n"}, "Expected `str`, got `array`"),
        ({"snapshot": b"\xff\xfe"}, "s.yaml cannot be read: it is not UTF-8 text"),
    ],
    ids=["policy", "empty", "object", "binary"],
)
async def test_an_unusable_file_is_an_error_with_its_path_or_line(tmp_path, files, says):
    with pytest.raises(errors.ConfigurationError, match=says):
        await connect(tmp_path, **files)
