"""NRI plugins of containerd that change a container leave railwright's settings unchanged."""

import json

from realnode import layout, pods, rails, ranks

LIMITS = [
    {"type": "RLIMIT_MEMLOCK", "soft": 65536, "hard": 65536},
    {"type": "RLIMIT_NOFILE", "soft": 512, "hard": 1024},
]
CHANGES = {"ulimits.nri.containerd.io/container.main": json.dumps(LIMITS), "nri.test/inject": "FIRST=1 SECOND=2"}


async def test_nri_plugins_do_not_change_rails_or_variables(real_site, installed, create):
    views = []
    for name, annotations in (("alone", {}), ("adjusted", CHANGES)):
        await create(pods.describe(name, "roce-derived", on=layout.NRI_NODE, annotations=annotations))
        await pods.wait_ready(installed.plane.api, rails.NAMESPACE, name, seconds=120)
        views.append(ranks.Rank(real_site, rails.NAMESPACE, name, "main"))
    alone, rank = views
    environment = await rank.read_environment()
    assert (environment["FIRST"], environment["SECOND"]) == ("1", "2"), "the variables of the plugin"
    assert "injected" in await rank.list_devices("/dev")
    assert "io.containerd.nri.v1.nri" in await rank.run("cat", "/etc/injected"), "the mount of the plugin"
    lines = (await rank.run("cat", "/proc/1/limits")).splitlines()
    values = {line[:26].strip(): line[26:].split()[:2] for line in lines}
    assert values["Max locked memory"] == ["65536", "65536"], "IPC_LOCK stands above it"
    assert values["Max open files"] == ["512", "1024"]
    await rank.check_rails(layout.SUBNETS)
    assert await rank.read_nccl() == await alone.read_nccl()
    assert await rank.list_devices("/dev/infiniband") == await alone.list_devices("/dev/infiniband")
    assert await rank.has_capability(ranks.IPC_LOCK)
    await rank.check_shared_memory(64)
