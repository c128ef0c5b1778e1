"""No state of the extender refuses all nodes to a pod: only NVLink domains and broken rails refuse nodes.

The states are random, also impossible ones: pods that use more than exists, claims of others, announcements, gangs of
any size, plans of earlier decisions. The offered nodes are those that kube-scheduler found feasible.
"""

from collections.abc import Sequence

import claimed
import devices
import extending
import msgspec
import placing
import pytest
from hypothesis import given
from hypothesis import strategies as st
from placing import GPU, RESOURCES, build_leaves, build_node, build_pod

from railwright.fabric.overview import overview_types
from railwright.fabric.workloads import volcano

NAMES = [f"{leaf}-{number:02}" for leaf, size in {"a": 3, "b": 2, "c": 1}.items() for number in range(size)]
POLICIES = {
    "plain": placing.build_policy(),
    "shapes": placing.build_policy(shapes=[placing.TWO_SIDED]),
    "oversubscribed": placing.build_policy(oversubscription=[7.0, 2.0]),
    "no domains": placing.build_policy(domains=[]),
    "claims": claimed.policy(),
    "segments": placing.change_fabric(placing.build_policy(), nvlink_segment=2),
    "broken rails": placing.build_policy(),
}
AMOUNTS = st.sampled_from([0, 1, 4, 8, 1000])
CLAIM_NAMES = (GPU, "claims.railwright.io/roce.rail0", "deviceclass.resource.kubernetes.io/dranet", *RESOURCES)

on = st.sampled_from(NAMES)
gang = st.sampled_from(["", "g", "h"])
rank = st.integers(0, 3)
seconds = st.sampled_from([0.0, 0.1, 1.0, 5.0, 60.0])


@st.composite
def draw_pods(draw: st.DrawFn, *, bound: bool | None = None):
    """Draw a pod that requests any amounts, of a gang or not, bound or not, terminating or not."""
    is_bound = draw(st.booleans()) if bound is None else bound
    requests = draw(st.dictionaries(st.sampled_from(CLAIM_NAMES), AMOUNTS.map(str), max_size=4))
    of, number = draw(gang), draw(rank)
    built = placing.build_pod_with(f"{of or 'p'}-{number}", requests, on=draw(on) if is_bound else "", group=of)
    ended = {"deletion_timestamp": "2026-11-28T00:00:00Z"} if draw(st.booleans()) else {}
    return placing.change_pod(built, metadata=ended) if ended else built


@st.composite
def draw_changes(draw: st.DrawFn):
    """Draw a change of the extender's state."""
    kind = draw(
        st.sampled_from(["pod", "gone", "announced", "closed", "time", "size", "claim", "asked", "report", "node"])
    )
    match kind:
        case "pod" | "gone" | "announced":
            return kind, draw(draw_pods()), draw(on)
        case "asked":
            return kind, draw(draw_pods(bound=False)), draw(st.lists(on, unique=True))
        case "size":
            return kind, draw(st.sampled_from("gh")), draw(st.integers(1, 9))
        case "claim":
            return kind, draw(st.sets(st.integers(0, 3))), draw(on)
        case "time":
            return kind, draw(seconds), None
        case "report":
            return kind, draw(on), draw(st.integers(0, 4))
        case _:
            return kind, draw(on), draw(st.booleans())


def apply_change(site: extending.Site, belief) -> None:
    kind, first, second = belief
    match kind:
        case "pod":
            site.pods.upsert(first)
        case "gone":
            site.pods.remove(first)
        case "announced":
            assert site.allocate(first, second) == "", "nothing keeps Volcano from a placement either"
        case "asked":
            site.score(first, site.filter(first, second))
        case "size":
            site.state.cluster.sizes.upsert(volcano.POD_GROUPS, placing.build_pod_group("train", first, second))
        case "claim":
            tree = claimed.build_claim(f"claim-{second}", sorted(first), gpus=8, pod_uid="uid-g-0", on=second)
            site.state.cluster.change_devices(lambda known: known.claim_sink.upsert(devices.read_claim(tree)))
        case "time":
            site.now += first
            site.state.assumed.expire(site.now, 30)
        case "report":
            site.state.cluster.upsert_topology(placing.build_report(0, second, name=first))
        case "node":
            known = build_node(first, first[0], f"s-{first[0]}", rails_each=0, unschedulable=second)
            site.state.cluster.upsert_node(known)
        case _:
            site.close()


def start(name: str) -> extending.Site:
    site = extending.Site(build_leaves(a=3, b=2, c=1), (), POLICIES[name])
    if name == "claims":
        claimed.name_devices(site.state.cluster)
        claimed.add_slices(site.state.cluster, *NAMES)
    site.state.apply_policy(site.policy)
    return site


def filter_nodes(site: extending.Site, waiting, offered) -> tuple[list[str], dict[str, str]]:
    answer = site.ask_kube("filter", {"Pod": extending.build_tree(waiting), "NodeNames": list(offered)})
    assert answer["Error"] == ""
    assert answer["FailedNodes"] == {}
    return answer["NodeNames"], answer["FailedAndUnresolvableNodes"]


@given(
    name=st.sampled_from([name for name in POLICIES if name not in ("segments", "broken rails")]),
    changes=st.lists(draw_changes(), max_size=12),
    waiting=draw_pods(bound=False),
    offered=st.lists(on, min_size=1, unique=True),
)
def test_filter_never_refuses_all_offered_nodes_whatever_the_extender_assumes(name, changes, waiting, offered):
    site = start(name)
    for change in changes:
        apply_change(site, change)
    left, refused = filter_nodes(site, waiting, offered)
    assert left
    assert set(left) <= set(offered)
    assert refused == {}


@given(
    changes=st.lists(draw_changes(), max_size=12),
    waiting=draw_pods(bound=False),
    offered=st.lists(on, min_size=1, unique=True),
    broken=st.sets(on),
)
def test_only_broken_rails_and_other_nvlink_domains_refuse_nodes_each_with_its_reason(
    changes, waiting, offered, broken
):
    site = start("segments")
    for change in changes:
        apply_change(site, change)
    for name in broken:
        known = placing.mark_broken(build_node(name, name[0], f"s-{name[0]}"), "rail0")
        site.state.cluster.upsert_node(known)
    left, refused = filter_nodes(site, waiting, offered)
    assert left or set(refused) == set(offered)
    assert not set(left) & set(refused)
    if placing.build_request(waiting, offered, site.policy).has_segment:
        assert len({name[0] for name in left}) <= 1
    for name, message in refused.items():
        assert (name in broken and "rail0" in message) or "NVLink domain" in message


@pytest.mark.parametrize("verb", ["filter", "predicate"])
def test_a_node_with_a_broken_rail_is_refused_only_to_pods_that_need_the_rail(verb):
    site = start("broken rails")
    site.state.cluster.upsert_node(placing.mark_broken(build_node("a-00", "a"), "rail0"))
    needing, other = build_pod("p"), placing.build_pod_with("q", {GPU: "1", RESOURCES[1]: "1"})

    def find_refusal(asking) -> str:
        if verb == "filter":
            return filter_nodes(site, asking, ["a-00", "a-01"])[1].get("a-00", "")
        task = extending.build_task(asking)
        answers = [site.ask_volcano("predicate", {"task": task, "node": {"Name": name}}) for name in ("a-00", "a-01")]
        assert answers[1] == {"status": "", "code": 0}
        assert answers[0]["code"] == (3 if answers[0]["status"] else 0)
        return answers[0]["status"]

    assert "rail0" in find_refusal(needing)
    assert find_refusal(other) == ""


def test_an_explanation_lists_equal_reasons_of_refused_nodes_once():
    site = extending.Site(
        [placing.mark_broken(build_node(f"a-0{number}", "a"), f"rail{number // 2}") for number in range(4)]
    )
    site.pods.upsert(build_pod("p"))
    explanation = site.explain("p").gang
    assert explanation.state == overview_types.WAITING
    assert {(why.code, why.message.rpartition(" ")[2]) for why in explanation.why} == {
        ("RailBroken", "rail0"),
        ("RailBroken", "rail1"),
    }
    assert len(explanation.why) == 2


OWN_TEMPLATE = "railwright-roce-4x4-0123456789"


@pytest.mark.parametrize(("template", "refused"), [(OWN_TEMPLATE, {"n"}), ("mine", set())])
def test_a_node_with_tainted_devices_is_not_refused_to_a_pod_with_its_authors_claims(template, refused):
    site = extending.Site([claimed.build_claimed_node(name, "a") for name in ("n", "m")], (), claimed.policy())
    cluster = site.state.cluster
    claimed.name_devices(cluster)
    claimed.add_slices(cluster, "m")
    claimed.add_slices(
        cluster,
        "n",
        taints={device["name"]: "NoSchedule" for device in devices.build_slices("n")[0]["spec"]["devices"]},
    )
    claimed.add_template(cluster, template, (0, 1, 2, 3))
    site.state.apply_policy(site.policy)
    left, answered = filter_nodes(site, claimed.build_claiming_pod("p", templates=(template,)), ["n", "m"])
    assert set(answered) == refused
    assert set(left) == {"n", "m"} - refused


def start_segments(*, taken: Sequence[str] = ()) -> tuple[extending.Site, list]:
    """Return a site with a gang of four in one segment, of which no pod is placed, and other pods on some nodes."""
    by = placing.change_fabric(placing.build_policy(), nvlink_segment=4)
    ranks = [build_pod(f"w-{number}", group="g") for number in range(4)]
    site = extending.Site(build_leaves(a=4, b=6), (), by)
    site.state.apply_policy(by)
    for built in (*ranks, *(build_pod(f"on-{name}", on=name) for name in taken)):
        site.pods.upsert(built)
    return site, ranks


# one free node in domain a and two in b
FULL = ("a-01", "a-02", "a-03", "b-02", "b-03", "b-04", "b-05")


def test_a_segment_stays_in_the_domain_of_its_first_member_before_any_binding_is_seen():
    """Two domains have one free node each, so the segment does not fit: its second member waits."""
    site, ranks = start_segments(taken=[*FULL, "b-01"])
    assert filter_nodes(site, ranks[0], ["a-00", "b-00"]) == (["a-00"], {})
    left, refused = filter_nodes(site, ranks[1], ["b-00"])
    assert (left, set(refused)) == ([], {"b-00"})
    assert "is another NVLink domain" in refused["b-00"]


@pytest.mark.parametrize("taken", ["b-00", "b-01"])
def test_members_of_a_segment_follow_the_first_one_to_its_domain(taken):
    site, ranks = start_segments(taken=FULL)
    left, _ = filter_nodes(site, ranks[0], ["a-00", "b-00", "b-01"])
    assert left == ["b-00", "b-01"], "the domain with the most room, though too little for all"
    site.score(ranks[0], left)
    others = [name for name in ("a-00", "b-00", "b-01") if name != taken]
    left, refused = filter_nodes(site, ranks[1], others)
    assert (left, set(refused)) == (others[1:], {"a-00"})
    site.now += 2.1
    assert filter_nodes(site, ranks[2], ["a-00"]) == (["a-00"], {}), "none has been bound"


def test_filter_returns_another_domain_when_the_first_pod_of_a_segment_is_tried_again():
    """A plugin or another extender refuses the nodes of the planned one."""
    site, ranks = start_segments()
    left = [filter_nodes(site, ranks[0], ["a-00", "a-01", "a-02", "a-03", "b-00"])[0] for _ in range(3)]
    assert [{name[0] for name in names} for names in left] == [{"a"}, {"b"}, {"a"}]
    assert filter_nodes(site, ranks[0], ["a-00"])[0] == ["a-00"]


def test_an_announced_pod_fixes_the_domain_of_its_segment_only_if_the_watch_has_shown_the_pod():
    site, ranks = start_segments()
    forged = placing.change_pod(build_pod("w-0", group="g"), metadata={"uid": "forged"})
    assert site.allocate(forged, "b-05") == ""
    assert filter_nodes(site, ranks[1], ["a-00"]) == (["a-00"], {})
    assert site.allocate(ranks[0], "b-05") == ""
    assert set(filter_nodes(site, ranks[1], ["a-00", "b-00"])[1]) == {"a-00"}


@pytest.mark.parametrize(
    ("scope", "devices_of_pod", "is_refused"), [("rail", 4, True), ("rail", 2, False), ("pod", 1, False)]
)
def test_a_broken_rail_of_a_shared_resource_refuses_pods_that_need_more_than_the_other_rails(
    scope, devices_of_pod, is_refused
):
    known = placing.build_policy().document.fabrics["roce"].rails
    rails = tuple(msgspec.structs.replace(rail, resource="rdma/ib") for rail in known)
    by = placing.change_fabric(placing.build_policy(), rails=rails, device_scope=scope)
    site = extending.Site(
        [build_node("n", "a", rails_each={"rdma/ib": 8}), build_node("m", "a", rails_each={"rdma/ib": 8})], (), by
    )
    site.state.apply_policy(by)
    site.state.cluster.upsert_node(placing.mark_broken(build_node("n", "a", rails_each={"rdma/ib": 8}), "rail3"))
    asking = placing.build_pod_with("p", {GPU: "1", "rdma/ib": str(devices_of_pod)})
    assert set(filter_nodes(site, asking, ["n", "m"])[1]) == ({"n"} if is_refused else set())
