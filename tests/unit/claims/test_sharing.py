"""Equal claims and devices share objects, which are never out of date."""

import claimed
import devices
from hypothesis import given
from hypothesis import strategies as st

from extender import state as states
from railwright.fabric import resources
from railwright.fabric.claims import inventory
from railwright.fabric.placement.state import assumed_pods, pod_usage
from railwright.fabric.workloads import membership

NODES = ("n1", "n2")
NICS = tuple(f"pci-0000-{root}-1b-0" for root in devices.ROOTS)
NAMES = ("c", "d", "e")


def read_claim(name, node, nics, pod=""):
    requests = {f"r{number}": "dranet" for number in range(len(nics))}
    allocated = [("dra.net", node, nic) for nic in nics]
    return devices.read_claim(devices.build_claim(name, requests, pod_uid=pod, allocated=allocated))


def test_an_assumed_pod_is_listed_beside_its_claim_until_it_is_observed():
    state = states.State()
    state.cluster.change_devices(
        lambda known: known.slice_sink.replace(devices.read_slices(*devices.build_slices("n1")))
    )
    state.cluster.change_devices(lambda known: known.claim_sink.upsert(read_claim("c", "n1", NICS[:1], pod="u")))
    state.assumed.assume(
        assumed_pods.AssumedPod(
            uid="u",
            key="train/p",
            gang=membership.GangKey(""),
            rank=membership.Rank(role=1, index=0, name="p"),
            node="n1",
            requests=resources.NO_AMOUNTS,
            state=assumed_pods.State.ALLOCATED,
            since=0.0,
        )
    )
    holders = pod_usage.list_holders("n1", state.cluster, except_uid="other")
    assert [holder.key for holder in holders] == ["train/p", "claim train/c"]


EVENTS = st.one_of(
    st.tuples(
        st.just("claim"), st.sampled_from(NAMES), st.sampled_from(NODES), st.lists(st.sampled_from(NICS), unique=True)
    ),
    st.tuples(st.just("released"), st.sampled_from(NAMES)),
    st.tuples(
        st.just("slices"),
        st.sampled_from(NODES),
        st.sets(st.sampled_from(NICS), max_size=2),
        st.sets(st.sampled_from((*NICS, "gpu-0")), max_size=2),
    ),
    st.tuples(st.just("gone"), st.sampled_from(NODES)),
)


@given(events=st.lists(EVENTS, max_size=12))
def test_counts_equal_those_of_a_new_inventory(events):
    known = claimed.build_inventory(*NODES)
    offered = {tree.metadata.name: tree for node in NODES for tree in devices.read_slices(*devices.build_slices(node))}
    claims = {}
    for kind, name, *rest in events:
        match kind, rest:
            case "claim", [node, nics]:
                held = {nic for other, (on, theirs) in claims.items() if other != name and on == node for nic in theirs}
                claims[name] = (node, [nic for nic in nics if nic not in held])
                known.claim_sink.upsert(read_claim(name, *claims[name], pod=name))
            case "released", _:
                known.claim_sink.remove(read_claim(name, *claims.pop(name, ("n1", []))))
            case "slices", [tainted, without]:
                taints = dict.fromkeys(tainted, "NoExecute")
                for tree in devices.read_slices(*devices.build_slices(name, taints=taints, without=sorted(without))):
                    offered[tree.metadata.name] = tree
                    known.slice_sink.upsert(tree)
            case _:
                for tree in devices.read_slices(*devices.build_slices(name)):
                    offered.pop(tree.metadata.name, None)
                    known.slice_sink.remove(tree)
        check_counts(known, offered, claims)


def check_counts(known, offered, claims):
    rebuilt = claimed.build_inventory()
    rebuilt.claim_sink.replace([read_claim(name, *held, pod=name) for name, held in claims.items()])
    rebuilt.slice_sink.replace(list(offered.values()))
    for node in NODES:
        assert known.count_devices(node) == rebuilt.count_devices(node)
        assert known.list_holders(node) == rebuilt.list_holders(node)
    for name in NAMES:
        key = inventory.PodKey(name, "train")
        assert known.list_held(key) == rebuilt.list_held(key)
