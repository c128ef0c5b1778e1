"""Multus's annotation: read, checked and added to by Multus's own rules (rulings 9 and 10)."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric import networks

RAIL0 = networks.Selection("prod", "lan2")
RAIL1 = networks.Selection("prod", "lan3", "rail1")


def told(selections):
    return [(s.namespace, s.name, s.interface) for s in selections]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("[]", []),
        (" [ ] ", []),
        ("a", [("team", "a", "")]),
        ("a@net7, b/c ,d/e@x", [("team", "a", "net7"), ("b", "c", ""), ("d", "e", "x")]),
        ('[{"name":"a"}]', [("team", "a", "")]),
        ('[{"name":"a.b","namespace":"x","interface":"i"}]', [("x", "a.b", "i")]),
        ('[{"name":"a","interfaceRequest":"old"}]', [("team", "a", "old")]),
        ('[{"name":"a","interfaceRequest":"old","interface":"new"}]', [("team", "a", "new")]),
        ('[{"Name":"a","NAMESPACE":"x","interface":null}]', [("x", "a", "")]),
        ('[{"name":"a","mac":"02:00:00:00:00:01","ips":["10.0.0.1/24","fd00::1"]}]', [("team", "a", "")]),
        ('[{"name":"a","infiniband-guid":"02:00:00:00:00:00:00:01","default-route":["10.0.0.1"]}]', [("team", "a", "")]),
    ],
)
def test_a_value_is_read_as_multus_reads_it(text, expected):
    assert told(networks.parse(text, "team")) == expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a,,b", "item 2: is empty"),
        ("a,", "item 2: is empty"),
        (" ", "item 1: is empty"),
        ("a,b/c/d", "item 2: 'b/c/d' must have the form"),
        ("a@b@c", "item 1: 'a@b@c' must have the form"),
        ("a@b/c", "item 1: 'a@b/c' must have the form"),
        ("a.b", "item 1: the network name 'a.b' is not a DNS-1123 label"),
        ("A/b", "item 1: the namespace 'A' is not a DNS-1123 label"),
        ("a/", "item 1: the network name '' is not"),
        ("a@sixteen-is-toobig", "item 1: the interface 'sixteen-is-toobig' is longer than the 15 bytes"),
        ("a@x y", "item 1: the interface 'x y' is not a name Linux allows"),
        ('{"name":"a"}', "not an array; put the network into [ ]"),
        ("[a]", "reads it as JSON, and it is not"),
        ('a,"b"', "reads it as JSON, and it is not"),
        ('[{"name":"a"},{}]', 'item 2: has no "name"'),
        ('[{"name":"a/b"}]', 'item 1: "name" \'a/b\' cannot be an object\'s name'),
        ('[{"name":1}]', "item 1: has a value of the wrong type: Expected `str"),
        ('[{"name":"a","ips":"10.0.0.1"}]', "item 1: has a value of the wrong type: Expected `array"),
        ('[{"name":"a","bandwidth":{"ingressRate":"1"}}]', "$.bandwidth.ingressRate"),
        ('["a"]', "item 1: is 'a', not an object"),
        ("[null]", "item 1: is None, not an object"),
        ('[{"name":"a","mac":"02-00"}]', "item 1: \"mac\" '02-00' is not a MAC address"),
        ('[{"name":"a","ips":["10.0.0.1/33"]}]', "\"ips\" '10.0.0.1/33' is not an IP address"),
        ('[{"name":"a","default-route":["10.0.0.0/8"]}]', "\"default-route\" '10.0.0.0/8' is not an IP address"),
        ("[" * 100_000, "reads it as JSON, and it is not"),
        ('[{"name":"\ud800"}]', "reads it as JSON, and it is not"),
    ],
)
def test_what_multus_would_reject_is_refused_with_the_item_and_the_fix(text, said):
    with pytest.raises(networks.InvalidNetworksError) as caught:
        networks.parse(text, "team")
    assert said in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("text", "cluster_wide", "said"),
    [
        ("a@rail0,b@rail0", 0, "item 2: team/b asks for 'rail0', which is already the interface of item 1 (team/a, "),
        ("a,b@net1", 0, "item 2: team/b asks for 'net1', which is already the interface of item 1 (team/a, which has no"),
        ("a@net2,b", 0, "item 2: team/b has no interface name, so Multus calls it 'net2', which is already the"),
        ("a@net3,b", 1, "so Multus calls it 'net3'"),
        ("a@net1", 1, "already the interface of a cluster-wide network of Multus"),
        ("a@eth0", 0, "already the interface of the pod's cluster network"),
        ("a@ens3", 0, "already the interface of the pod's cluster network"),
        ("a@lo", 0, "already the interface of the loopback device"),
        ('[{"name":"a","interface":"sixteen-is-toobig"}]', 0, "item 1: the interface 'sixteen-is-toobig' of team/a is"),
        ('[{"name":"a","interface":"a:b"}]', 0, "is not a name Linux allows"),
        ('[{"name":"a","interface":"\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9"}]', 0, "is longer than the 15 bytes"),
    ],
)
def test_a_clash_of_interfaces_is_found_at_admission_and_names_both(text, cluster_wide, said):
    selections = networks.parse(text, "team")
    with pytest.raises(networks.InvalidNetworksError) as caught:
        networks.check_interfaces(selections, primary="ens3", cluster_wide=cluster_wide)
    assert said in str(caught.value)


@pytest.mark.parametrize(("text", "cluster_wide"), [("a@net9,b,c@rail2", 0), ("a,b,c", 3), ("a@net1,b", 0), ("", 2)])
def test_distinct_interfaces_pass(text, cluster_wide):
    networks.check_interfaces(networks.parse(text, "team"), primary="eth0", cluster_wide=cluster_wide)


@pytest.mark.parametrize(
    ("text", "ours", "expected"),
    [
        ("", [RAIL0, RAIL1], "prod/lan2,prod/lan3@rail1"),
        ("mine", [RAIL0], "mine,prod/lan2"),
        (" mine@x , b ", [RAIL1], " mine@x , b ,prod/lan3@rail1"),
        ("[]", [RAIL0], '[{"name":"lan2","namespace":"prod"}]'),
        (
            '[ {"name":"a", "x-unknown": 1e3, "mac":null} ]\n',
            [RAIL1],
            '[ {"name":"a", "x-unknown": 1e3, "mac":null} ,{"name":"lan3","namespace":"prod","interface":"rail1"}]\n',
        ),
        (
            "mine@x",
            [networks.Selection("prod", "lan.2")],
            '[{"name":"mine","interface":"x"},{"name":"lan.2","namespace":"prod"}]',
        ),
        ("", [networks.Selection("prod", "lan.2")], '[{"name":"lan.2","namespace":"prod"}]'),
        ("", [networks.Selection("prod", "a", "x,y")], '[{"name":"a","namespace":"prod","interface":"x,y"}]'),
        ("prod/lan2@mine", [RAIL0, RAIL1], "prod/lan2@mine,prod/lan3@rail1"),
        ("prod/lan2,prod/lan3@rail1", [RAIL0, RAIL1], "prod/lan2,prod/lan3@rail1"),
        ("prod/lan2", [RAIL0, RAIL0, RAIL0], "prod/lan2,prod/lan2,prod/lan2"),
        ("prod/lan2,prod/lan2,prod/lan2", [RAIL0, RAIL0], "prod/lan2,prod/lan2,prod/lan2"),
        (
            "oci/vf@rail1",  # the user's is our second rail: what is missing is the first
            [networks.Selection("oci", "vf", "rail0"), networks.Selection("oci", "vf", "rail1")],
            "oci/vf@rail1,oci/vf@rail0",
        ),
    ],
)
def test_ours_are_appended_and_theirs_stay_as_written(text, ours, expected):
    assert networks.merge(text, ours, "team") == expected


def test_a_network_of_the_pods_own_namespace_counts_whether_qualified_or_not():
    assert networks.merge("lan2", [RAIL0], "prod") == "lan2"
    assert networks.merge("lan2", [RAIL0], "team") == "lan2,prod/lan2"


def test_merging_into_a_value_multus_cannot_read_is_refused():
    with pytest.raises(networks.InvalidNetworksError):
        networks.merge("a,,b", [RAIL0], "team")


LABELS = st.sampled_from(["a", "b", "lan2", "0x", "team", "prod"])
DOTTED = st.sampled_from(["a.b", "lan.2"])
INTERFACES = st.sampled_from(["", "net1", "rail0", "x"])
SPACE = st.sampled_from(["", " ", "\t", "\n "])


@st.composite
def string_values(draw):
    items = []
    for _ in range(draw(st.integers(0, 5))):
        namespace, interface = draw(st.one_of(st.just(""), LABELS)), draw(INTERFACES)
        core = (f"{namespace}/" if namespace else "") + draw(LABELS) + (f"@{interface}" if interface else "")
        items.append(draw(SPACE) + core + draw(SPACE))
    return ",".join(items)


UNKNOWN = st.dictionaries(
    st.sampled_from(["x", "cni-args-2", "note"]),
    st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=4), st.lists, max_leaves=3),
)


@st.composite
def json_values(draw):
    known = st.fixed_dictionaries(
        {"name": LABELS | DOTTED},
        optional={"namespace": LABELS, "interface": INTERFACES, "mac": st.none(), "cni-args": UNKNOWN},
    )
    items = draw(st.lists(st.tuples(UNKNOWN, known).map(lambda pair: {**pair[0], **pair[1]}), max_size=5))
    return draw(SPACE) + json.dumps(items, indent=draw(st.sampled_from([None, 2]))) + draw(SPACE)


VALUES = string_values() | json_values()
OURS = st.lists(st.builds(networks.Selection, LABELS, LABELS | DOTTED, INTERFACES), max_size=5)


@given(VALUES, OURS)
def test_whatever_the_user_wrote_survives_in_front_and_in_order(text, ours):
    theirs = networks.parse(text, "team")
    merged = networks.merge(text, ours, "team")
    after = networks.parse(merged, "team")
    assert told(after[: len(theirs)]) == told(theirs)
    if theirs and theirs[0].tree is not None:
        assert [s.tree for s in after[: len(theirs)]] == [s.tree for s in theirs]
        assert merged.startswith(text.rstrip()[:-1])
    if not merged.lstrip().startswith("["):
        assert merged.startswith(text)


@given(VALUES, OURS)
def test_merging_twice_is_merging_once(text, ours):
    once = networks.merge(text, ours, "team")
    assert networks.merge(once, ours, "team") == once


@given(VALUES, OURS)
def test_the_result_holds_theirs_and_exactly_what_of_ours_is_missing(text, ours):
    theirs = [(s.namespace, s.name) for s in networks.parse(text, "team")]
    after = [(s.namespace, s.name) for s in networks.parse(networks.merge(text, ours, "team"), "team")]
    mine = [(s.namespace, s.name) for s in ours]
    for key in {*theirs, *mine}:
        assert after.count(key) == max(theirs.count(key), mine.count(key))
    assert all(s in told(ours) for s in told(networks.parse(networks.merge(text, ours, "team"), "team"))[len(theirs) :])


@given(st.text(max_size=40) | st.text(alphabet='ab/@,[]{}":. ', max_size=20), OURS)
def test_any_text_is_read_or_refused_and_never_anything_else(text, ours):
    try:
        selections = networks.parse(text, "team")
    except networks.InvalidNetworksError:
        return
    assert told(networks.parse(networks.merge(text, ours, "team"), "team"))[: len(selections)] == told(selections)
