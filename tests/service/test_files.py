import asyncio
import contextlib
import logging
import os

import pytest
import shell

from railwright.cluster import policies, sources

POLICY = "apiVersion: railwright.io/v1alpha1\nfabrics: {%s: {transport: tcp}}\n"
NODE = "kind: Node\nmetadata: {name: %s}\n---\n"


class Recorder:
    """A sink that keeps the names of every replacement."""

    def __init__(self):
        self.states = []

    def replace(self, objects):
        self.states.append([one.metadata.name for one in objects])

    def upsert(self, obj):
        raise AssertionError(obj)

    def remove(self, obj):
        raise AssertionError(obj)


@contextlib.asynccontextmanager
async def running(watched):
    task = asyncio.create_task(watched.run())
    try:
        yield task
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def replace_by_rename(path, content):
    new = path.with_suffix(".new")
    new.write_bytes(content if isinstance(content, bytes) else content.encode())
    new.replace(path)


def fabrics(store):
    return [] if store.current is None else list(store.current.document.fabrics)


@contextlib.asynccontextmanager
async def watching(folder):
    """Yield the path of a policy that has been read, its store and its source."""
    path, store = folder / "p.yaml", policies.PolicyStore()
    path.write_text(POLICY % "one")
    watched = sources.watch_policy(path, store)
    async with running(watched):
        await asyncio.wait_for(watched.synced.wait(), shell.PATIENCE)
        yield path, store, watched


@pytest.fixture
def often(monkeypatch):
    """Let files be looked at a hundred times a second."""
    monkeypatch.setattr(sources, "_INTERVAL", 0.01)


async def test_a_changed_policy_file_is_applied(tmp_path):
    assert sources._INTERVAL <= 0.5, "a change takes effect within a second: docs/interface.md 2.1"
    async with watching(tmp_path) as (path, store, _):
        assert (fabrics(store), store.valid) == (["one"], True)
        for name, write in (("written", type(path).write_text), ("renamed", replace_by_rename)):
            write(path, POLICY % name)
            await shell.until(lambda name=name: fabrics(store) == [name])


async def test_a_configmap_volumes_symlink_swap_is_seen(tmp_path):
    def mount(name):
        (tmp_path / name).mkdir()
        (tmp_path / name / "policy.yaml").write_text(POLICY % name)
        (tmp_path / "..new").symlink_to(name)
        (tmp_path / "..new").replace(tmp_path / "..data")

    mount("first")
    (tmp_path / "policy.yaml").symlink_to("..data/policy.yaml")
    store = policies.PolicyStore()
    watched = sources.watch_policy(tmp_path / "policy.yaml", store)
    async with running(watched):
        await asyncio.wait_for(watched.synced.wait(), shell.PATIENCE)
        mount("second")
        await shell.until(lambda: fabrics(store) == ["second"])


@pytest.mark.usefixtures("often")
async def test_a_bad_policy_keeps_the_last_valid_one(tmp_path, caplog):
    with caplog.at_level(logging.WARNING, "railwright.cluster.sources"):
        async with watching(tmp_path) as (path, store, _):
            replace_by_rename(path, POLICY.replace("tcp", "tpc") % "two")
            await shell.until(lambda: not store.valid)
            assert fabrics(store) == ["one"]
            os.utime(path)  # the same bad content under a new time stamp is no news
            await asyncio.sleep(0.1)
            assert len(caplog.records) == 1
            assert "line 2: fabrics.two.transport" in caplog.text
            replace_by_rename(path, POLICY % "one")
            await shell.until(lambda: store.valid)


@pytest.mark.usefixtures("often")
@pytest.mark.parametrize("loss", ["deleted", "binary", "folder"])
async def test_the_last_valid_policy_stays_while_its_file_is_unreadable(tmp_path, loss, caplog):
    async with watching(tmp_path) as (path, store, _):
        if loss == "binary":
            replace_by_rename(path, b"\xff\xfe")
        else:
            path.unlink()
        if loss == "folder":
            path.mkdir()
        await shell.until(lambda: not store.valid)
        assert fabrics(store) == ["one"]
        await asyncio.sleep(0.1)  # ten looks, to show that none of them repeats the warning
        assert len(caplog.records) == 1
        if loss == "folder":
            path.rmdir()
        path.write_text(POLICY % "one")
        await shell.until(lambda: store.valid)


async def test_a_snapshot_replaces_every_sink(tmp_path):
    path, nodes, pods = tmp_path / "s.yaml", Recorder(), Recorder()
    path.write_text(NODE % "a" + NODE % "b" + "kind: Pod\nmetadata: {name: p, namespace: n}\n")
    watched = sources.watch_snapshot(path, {"Node": nodes, "Pod": pods})
    async with running(watched):
        await asyncio.wait_for(watched.synced.wait(), shell.PATIENCE)
        assert (nodes.states, pods.states) == ([["a", "b"]], [["p"]])
        replace_by_rename(path, NODE % "c")
        await shell.until(lambda: len(pods.states) == 2)
        assert (nodes.states[1:], pods.states[1:]) == ([["c"]], [[]])


@pytest.mark.usefixtures("often")
async def test_a_bad_snapshot_changes_no_sink(tmp_path, caplog):
    path, nodes = tmp_path / "s.yaml", Recorder()
    path.write_text(NODE % "a")
    watched = sources.watch_snapshot(path, {"Node": nodes})
    async with running(watched):
        await asyncio.wait_for(watched.synced.wait(), shell.PATIENCE)
        replace_by_rename(path, NODE % "b" + "kind: Node\nmetadata: {name: [c]}\n")
        await shell.until(lambda: caplog.records)
        assert nodes.states == [["a"]]
        assert "Expected `str`, got `array`" in caplog.text
        path.write_text("")  # as an editor leaves it for a moment, and a full disk for longer
        await shell.until(lambda: len(caplog.records) == 2)
        assert nodes.states == [["a"]]
        assert "is empty" in caplog.text
        replace_by_rename(path, NODE % "b")
        await shell.until(lambda: len(nodes.states) == 2)
        assert nodes.states == [["a"], ["b"]]
        assert len(caplog.records) == 2
