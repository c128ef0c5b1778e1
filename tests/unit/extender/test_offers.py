"""What Volcano offers of each node: read in turns, once for equal texts."""

import extending
import msgspec
from placing import GPU, leaves, pod

from extender import scheduling_requests, volcano_wire
from railwright.fabric import resources
from railwright.serving import turns


def test_offers_are_of_one_moment_although_the_cluster_changes_between_turns():
    site, asked = extending.Site(leaves(a=80)), pod("p")
    whole = site.state.cluster.get_free(site.names[0])[GPU]
    task = msgspec.convert(extending.build_task(asked), volcano_wire.Task)
    nodes = [
        {"Name": name, "Idle": {"MilliCPU": number, "ScalarResources": {GPU: whole}}}
        for number, name in enumerate(site.names)
    ]
    body = msgspec.json.encode({"task": extending.build_task(asked), "nodes": nodes})
    amounts = turns.complete(volcano_wire.read_prioritize(body))[1]
    requests = scheduling_requests.get_requests(task, site.state.cluster)
    steps = scheduling_requests.build_offers(amounts, requests, site.state)
    next(steps)
    for name in site.names:
        site.state.cluster.remove_node(name)
    offers = turns.complete(steps)
    assert [offer.idle[GPU] for offer in offers.values()] == [whole] * 80


def test_nodes_with_equal_texts_share_an_offer():
    site, asked = extending.Site(leaves(a=80)), pod("p")
    idle = [{"ScalarResources": {GPU: 1000 * (number < 3)}} for number in range(80)]
    nodes = [{"Name": name, "Idle": amounts} for name, amounts in zip(site.names, idle, strict=True)]
    amounts = turns.complete(volcano_wire.read_prioritize(msgspec.json.encode({"task": {}, "nodes": nodes})))[1]
    requests = resources.compute_requests(asked.spec)
    offers = turns.complete(scheduling_requests.build_offers(amounts, requests, site.state))
    assert [offer.idle[GPU] for offer in offers.values()] == [1000] * 3 + [0] * 77
    assert len(set(map(id, offers.values()))) == 2
