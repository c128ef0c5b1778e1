"""Random clusters and gangs for `small_clusters`. A case depends on its seed only, so that it can be repeated."""

import random
from collections.abc import Sequence
from typing import NamedTuple

import small_clusters as small


class Case(NamedTuple):
    """A cluster with other jobs' pods on it."""

    cluster: small.Cluster
    others: Sequence[tuple[int, small.Job]]  # (host, job of one pod)
    requests_devices: bool  # False: some nodes lack rails, and gangs use what there is without asking for devices
    chance: random.Random


def case(seed: int, *, large: bool = False) -> Case:
    """Trees of one to three levels with uneven leaves, of one or two node types, partly taken.

    A large one has more nodes than a scheduler offers whole: the project then remembers its plans.
    """
    chance = random.Random(seed)  # noqa: S311 - a test has to repeat, not to be secret
    levels, widest = chance.randint(1, 3), chance.choice([2, 3, 5, 8])
    types = chance.choice(["A", "A", "AB"])
    asking = len(types) == 1 or chance.random() < 0.6
    devices = chance.choice([1, 1, 100]) if asking else 100
    hosts: list[small.Host] = []

    def grow(level: int, chain: tuple[str, ...]) -> None:
        if level:
            for index in range(chance.randint(1, 4 if level == 1 else 3)):
                grow(level - 1, (f"{chain[0] if chain else 'd'}-{index}", *chain))
            return
        alike = chance.random() < 0.5  # leaves of one type, or of any
        product = chance.choice(types)
        for _ in range(chance.randint(1, widest)):
            product = product if alike else chance.choice(types)
            rails = range(small.RAILS if asking or product == "A" else small.RAILS // 2)
            hosts.append(
                small.Host(f"n{chance.randrange(1000):03}-{len(hosts)}", chain, product, tuple(rails), devices)
            )

    grow(levels, ())
    if large:
        hosts += [small.Host(f"z{index:03}", ("z",) * levels, "A", devices=devices) for index in range(100)]
    ratios = tuple(chance.choice([1.0, 1.0, 2.0, 4.0, 7.0]) for _ in range(levels))
    cluster = small.Cluster(tuple(hosts), ratios, chance.random() < 0.5, ((0, {}),) * len(hosts))
    share, others = chance.choice([0.0, 0.3, 0.6]), []
    for index, host in enumerate(hosts):
        job = small.Job(1, *chance.choice([(8, 4), (8, 4), (4, 4), (4, 2)]))
        job = small.Job(1) if host.name.startswith("z") else job
        if (host.name.startswith("z") or chance.random() < share) and small.room(cluster, index, job):
            others.append((index, job))
            cluster = small.taking(cluster, job, [index])
    return Case(cluster, others, asking, chance)


def job(of: Case, cluster: small.Cluster, most: int = 16) -> small.Job | None:
    """Return a gang that fits into the cluster; None if no gang of two does."""
    made = small.Job(2, *of.chance.choice([(8, 4), (8, 4), (4, 4), (4, 2)]), requests_devices=of.requests_devices)
    room = sum(small.room(cluster, host, made) for host in range(len(cluster.hosts)))
    return made._replace(pods=of.chance.randint(2, min(room, most))) if room >= 2 else None
