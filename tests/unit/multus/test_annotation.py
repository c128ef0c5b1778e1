"""Multus's annotation: read, checked and added to by Multus's own rules (interface.md 3.1)."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from railwright.fabric.multus import annotation, network_selection

RAIL0 = network_selection.Selection("prod", "lan2")
RAIL1 = network_selection.Selection("prod", "lan3", "rail1")


def merge(text, ours, namespace):
    return annotation.merge(text, annotation.parse(text, namespace), tuple(ours))


def summarize(selections):
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
        ('[{"name":"a","Name":null}]', [("team", "a", "")]),
        ('[{"name":"a","mac":"02:00:00:00:00:01","ips":["10.0.0.1/24","fd00::1"]}]', [("team", "a", "")]),
        (
            '[{"name":"a","infiniband-guid":"02:00:00:00:00:00:00:01","default-route":["10.0.0.1"]}]',
            [("team", "a", "")],
        ),
    ],
)
def test_a_value_is_read_as_multus_reads_it(text, expected):
    assert summarize(annotation.parse(text, "team")) == expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a,,b", "entry 2: is empty"),
        ("a,", "entry 2: is empty"),
        (" ", "entry 1: is empty"),
        ("a,b/c/d", "entry 2: 'b/c/d' has more than one '/'; write namespace/name@interface"),
        ("a@b@c", "entry 1: 'a@b@c' has more than one '@'; write namespace/name@interface"),
        ("a@b/c", "entry 1: namespace 'a@b' is not a DNS label"),
        ("a.b", "entry 1: network 'a.b' is not a DNS label (lower-case letters, digits and '-'); other names"),
        ("A/b", "entry 1: namespace 'A' is not a DNS label"),
        ("a/", "entry 1: is empty; remove the extra comma or name a network"),
        ("a@sixteen-is-toobig", "entry 1: interface 'sixteen-is-toobig' is longer than 15 characters; shorten it"),
        ("a@x y", "entry 1: interface 'x y' contains a space, '/', ':' or '%', or is all dots; rename it"),
        ('{"name":"a"}', "is JSON but not an array; put [ and ] around it"),
        ("[a]", "is not valid JSON at character 2, 'a]'; Multus reads a value that contains one of"),
        ('a,"b"', "is not valid JSON at character 1, 'a,\"b\"'; Multus reads"),
        ('[{"name": "a"', "is not valid JSON at its end; Multus reads"),
        ('[{"name":"a"},{}]', 'entry 2: has no "name"'),
        ('[{"name":"a","interface":"sixteen-is-toobig"}]', "entry 1: interface 'sixteen-is-toobig' is longer"),
        ('[{"name":"a","interface":"a:b"}]', "entry 1: interface 'a:b' contains a space, '/', ':' or '%'"),
        ('[{"name":"a","interface":"' + 8 * "\u00e9" + '"}]', "is longer than 15"),
        ('[{"name":"a","mac":"02:00:00-00:00:01"}]', "is not a MAC address"),
        ('[{"name":"a","ips":["10.0.0.1/255.0.0.0"]}]', "is not an IP address"),
        ('[{"name":"a","default-route":["fe80::1%eth0"]}]', "is not an IP address"),
        ('[{"name":1}]', 'entry 1: has a value of the wrong type: "name" is the number 1 and must be a string'),
        (
            '[{"name":"a","ips":"10.0.0.1"}]',
            'entry 1: has a value of the wrong type: "ips" is a string and must be a list',
        ),
        (
            '[{"name":"a","bandwidth":{"ingressRate":"1"}}]',
            '"bandwidth.ingressRate" is a string and must be a whole number',
        ),
        ('["a"]', "entry 1: is not an object; write"),
        ("[null]", "entry 1: is not an object; write"),
        ('[{"name":"a","mac":"02-00"}]', "entry 1: \"mac\" '02-00' is not a MAC address"),
        ('[{"name":"a","ips":["10.0.0.1/33"]}]', "\"ips\" '10.0.0.1/33' is not an IP address"),
        ('[{"name":"a","default-route":["10.0.0.0/8"]}]', "\"default-route\" '10.0.0.0/8' is not an IP address"),
        ("[" * 100_000, "is JSON that is nested too deeply; Multus reads"),
        ('[{"name":"\ud800"}]', "contains half of a UTF-16 surrogate pair"),
        ("a@\udfff", "contains half of a UTF-16 surrogate pair"),
        (
            '[{"name":"a"},{"name":"b","portMappings":[{},{"hostPort":80.0}]}]',
            "entry 2: has a value of the wrong type: ",
        ),
        ('[{"name":"a","bandwidth":{"egressRate":9223372036854775808}}]', "must be a whole number"),
        ('[{"name":5,"name":"a"}]', '"name" is the number 5 and must be a string'),
        ('[{"name":"a","ips":[""]}]', "\"ips\" '' is not an IP address"),
        ('[{"name":"a","ips":[null]}]', "\"ips\" '' is not an IP address"),
        ('[{"name":"a","deviceID":7}]', '"deviceID" is the number 7 and must be a string'),
        ('[{"name":"a","cni-args":{"x":1e999}}]', '"cni-args" is the number 1e999'),
        ('[{"name":"a","cni-args":' + '{"x":' * 3000 + "1" + "}" * 3000 + "}]", "nest"),
        ("a@x%d", "interface 'x%d' contains a space, '/', ':' or '%'"),
    ],
)
def test_annotations_that_multus_would_reject_are_refused_with_item_and_fix(text, said):
    with pytest.raises(network_selection.InvalidNetworksError) as caught:
        annotation.parse(text, "team")
    assert said in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("text", "cluster_wide", "said"),
    [
        ("a@rail0,b@rail0", 0, "entry 2: asks for interface 'rail0', which is the interface of entry 1"),
        ("a,b@net1", 0, "entry 2: asks for interface 'net1', which is the interface of entry 1"),
        ("a@net2,b", 0, "entry 2: is given the automatic name 'net2', which is the interface of entry 1"),
        ("a@net3,b", 1, "entry 2: is given the automatic name 'net3'"),
        ("a@net1", 1, "entry 1: asks for interface 'net1', which is network 1 of those attached to every pod"),
        ("a@eth0", 0, "which is the pod's cluster network; rename it"),
        ("a@ens3", 0, "which is the pod's primary interface; rename it"),
        ("a@lo", 0, "which is the loopback interface; rename it"),
    ],
)
def test_a_clash_of_interfaces_is_found_at_admission_and_names_both(text, cluster_wide, said):
    selections = annotation.parse(text, "team")
    with pytest.raises(network_selection.InvalidNetworksError) as caught:
        network_selection.check_interfaces(selections, cluster_wide, "ens3")
    assert said in str(caught.value)


@pytest.mark.parametrize(("text", "cluster_wide"), [("a@net9,b,c@rail2", 0), ("a,b,c", 3), ("a@net1,b", 0), ("", 2)])
def test_distinct_interfaces_pass(text, cluster_wide):
    network_selection.check_interfaces(annotation.parse(text, "team"), cluster_wide, "eth0")


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
            [network_selection.Selection("prod", "lan.2")],
            '[{"name":"mine","interface":"x"},{"name":"lan.2","namespace":"prod"}]',
        ),
        ("", [network_selection.Selection("prod", "lan.2")], '[{"name":"lan.2","namespace":"prod"}]'),
        ("", [network_selection.Selection("prod", "a", "x,y")], '[{"name":"a","namespace":"prod","interface":"x,y"}]'),
        ("prod/lan2@mine", [RAIL0, RAIL1], "prod/lan2@mine,prod/lan3@rail1"),
        ("prod/lan2,prod/lan3@rail1", [RAIL0, RAIL1], "prod/lan2,prod/lan3@rail1"),
        ("prod/lan2", [RAIL0, RAIL0, RAIL0], "prod/lan2,prod/lan2,prod/lan2"),
        ("prod/lan2,prod/lan2,prod/lan2", [RAIL0, RAIL0], "prod/lan2,prod/lan2,prod/lan2"),
        (
            "oci/vf@rail1",  # the user's is our second rail: what is missing is the first
            [network_selection.Selection("oci", "vf", "rail0"), network_selection.Selection("oci", "vf", "rail1")],
            "oci/vf@rail1,oci/vf@rail0",
        ),
        (
            "a",
            [network_selection.Selection("prod", "b", "x@y")],
            '[{"name":"a"},{"name":"b","namespace":"prod","interface":"x@y"}]',
        ),
    ],
)
def test_networks_are_appended_and_the_users_stay_as_written(text, ours, expected):
    assert merge(text, ours, "team").text == expected


def test_a_network_of_the_pods_own_namespace_counts_whether_qualified_or_not():
    assert merge("lan2", [RAIL0], "prod").text == "lan2"
    assert merge("lan2", [RAIL0], "team").text == "lan2,prod/lan2"


def test_merging_into_a_value_multus_cannot_read_is_refused():
    with pytest.raises(network_selection.InvalidNetworksError):
        merge("a,,b", [RAIL0], "team")


LABELS = st.sampled_from(["a", "b", "lan2", "0x", "team", "prod"])
DOTTED = st.sampled_from(["a.b", "lan.2"])
INTERFACES = st.sampled_from(["", "net1", "rail0", "x"])
ODD_INTERFACES = INTERFACES | st.sampled_from(["x,y", "x@y", 'x"'])  # names a policy may give
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
OURS = st.lists(st.builds(network_selection.Selection, LABELS, LABELS | DOTTED, ODD_INTERFACES), max_size=5)


@given(VALUES, OURS)
def test_whatever_the_user_wrote_survives_in_front_and_in_order(text, ours):
    theirs = annotation.parse(text, "team")
    merged = merge(text, ours, "team").text
    after = annotation.parse(merged, "team")
    assert list(after[: len(theirs)]) == list(theirs)
    if annotation.is_json(text):
        assert json.loads(merged)[: len(theirs)] == json.loads(text)  # unknown keys too
        assert merged.startswith(text.rstrip()[:-1])
    elif not annotation.is_json(merged):
        assert merged.startswith(text)


@given(VALUES, OURS)
def test_merging_twice_is_merging_once(text, ours):
    once = merge(text, ours, "team")
    twice = merge(once.text, ours, "team")
    assert (twice.text, twice.selections, twice.added) == (once.text, once.selections, 0)


@given(VALUES, OURS)
def test_the_result_has_the_users_networks_and_exactly_the_missing_ones(text, ours):
    theirs = annotation.parse(text, "team")
    merged = merge(text, ours, "team")
    assert annotation.parse(merged.text, "team") == merged.selections
    assert len(merged.selections) == len(theirs) + merged.added
    for key in {s.key for s in (*theirs, *ours)}:
        counts = [[s.key for s in some].count(key) for some in (theirs, ours, merged.selections)]
        assert counts[2] == max(counts[0], counts[1])
    assert all(s in ours for s in merged.selections[len(theirs) :])


@given(st.text(max_size=40) | st.text(alphabet='ab/@,[]{}":. ', max_size=20), OURS)
def test_any_text_is_read_or_refused_and_never_anything_else(text, ours):
    try:
        selections = annotation.parse(text, "team")
    except network_selection.InvalidNetworksError:
        return
    assert summarize(annotation.parse(merge(text, ours, "team").text, "team"))[: len(selections)] == summarize(
        selections
    )
