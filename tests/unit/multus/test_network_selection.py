"""Multus's annotation: read, checked and added to by Multus's own rules (interface.md 3.1)."""

import json

import admitting
import pytest

from railwright.fabric.multus import network_selection

RAIL0 = network_selection.Selection("prod", "lan2")
RAIL1 = network_selection.Selection("prod", "lan3", "rail1")


def merge(text, ours, namespace):
    return network_selection.merge_networks(text, network_selection.parse_networks(text, namespace), tuple(ours))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a,,b", "entry 2: is empty"),
        (
            "a,b/c/d",
            "entry 2: 'b/c/d' has more than one '/'; write namespace/name@interface, and commas between networks",
        ),
        ("a/b;a/c", "'a/b;a/c' has more than one '/'; write namespace/name@interface, and commas between networks"),
        ("- a/b\n- a/c\n", "more than one '/'; write namespace/name@interface, and commas between networks"),
        ("a b", "network 'a b' is not a DNS label (lower-case letters, digits and '-'); put commas between networks"),
        ("a;b", "network 'a;b' is not a DNS label (lower-case letters, digits and '-'); put commas between networks"),
        ("a@b@c", "entry 1: 'a@b@c' has more than one '@'; write namespace/name@interface"),
        ("a@b/c", "entry 1: namespace 'a@b' is not a DNS label"),
        ("a.b", "entry 1: network 'a.b' is not a DNS label (lower-case letters, digits and '-'); other names"),
        ("a/", "entry 1: is empty; remove the extra comma or name a network"),
        ("a@sixteen-is-toobig", "entry 1: interface 'sixteen-is-toobig' is longer than 15 characters; shorten it"),
        ("a@x y", "entry 1: interface 'x y' contains a space, '/', ':' or '%', or is all dots; rename it"),
        ('{"name":"a"}', "is JSON but not an array; put [ and ] around it"),
        ("[a]", "is not valid JSON at character 2, 'a]'; Multus reads a value that contains one of"),
        ('[{"name": "a"', "is not valid JSON at its end; Multus reads"),
        ('[{"name":"a"},{}]', 'entry 2: has no "name"'),
        ('[{"name":"a","interface":"a:b"}]', "entry 1: interface 'a:b' contains a space, '/', ':' or '%'"),
        ('[{"name":"a","interface":"' + 8 * "\u00e9" + '"}]', "is longer than 15"),
        ('[{"name":1}]', 'entry 1: "name" must be a string'),
        ('[{"name":"a","InterfaceRequest":["x"]}]', 'entry 1: "interfaceRequest" must be a string'),
        ('[{"name":"a"},null]', "entry 2: is not an object; write"),
        ('["a"]', "entry 1: is not an object; write"),
        ("[" * 100_000, "is JSON that is nested too deeply; Multus reads"),
        ('[{"name":"\ud800"}]', "contains half of a UTF-16 surrogate pair"),
        ("a@x%d", "interface 'x%d' contains a space, '/', ':' or '%'"),
    ],
)
def test_annotations_that_name_no_attachment_are_refused_with_item_and_fix(text, said):
    with pytest.raises(network_selection.InvalidNetworksError) as caught:
        network_selection.parse_networks(text, "team")
    assert said in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a@rail0,b@rail0", "entry 2: asks for interface 'rail0', which is the interface of entry 1"),
        ("a,b@net1", "entry 2: asks for interface 'net1', which is the interface of entry 1"),
        ("a@net2,b", "entry 2: is given the automatic name 'net2', which is the interface of entry 1"),
        ("a@eth0", "which is the pod's cluster network; rename it"),
        ("a@lo", "which is the loopback interface; rename it"),
    ],
)
def test_two_attachments_with_the_same_interface_name_are_refused_with_both_names(text, said):
    selections = network_selection.parse_networks(text, "team")
    with pytest.raises(network_selection.InvalidNetworksError) as caught:
        network_selection.check_interfaces(selections)
    assert said in str(caught.value)


@pytest.mark.parametrize("text", ["a@net9,b,c@rail2", "a,b,c", "a@net1,b", ""])
def test_attachments_with_different_interface_names_are_accepted(text):
    network_selection.check_interfaces(network_selection.parse_networks(text, "team"))


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
def test_networks_are_appended_and_the_existing_text_is_unchanged(text, ours, expected):
    assert merge(text, ours, "team").text == expected


def test_a_network_of_the_pods_namespace_is_found_with_or_without_its_namespace():
    assert merge("lan2", [RAIL0], "prod").text == "lan2"
    assert merge("lan2", [RAIL0], "team").text == "lan2,prod/lan2"


# --- comparison with recorded results of Multus (tests/data/multus) ---------------------------------------------

ANSWERS = json.loads((admitting.ROOT / "tests" / "data" / "multus" / "answers.json").read_text())
# Accepted by Multus's parser, but the pod would fail later: rejected at admission (interface.md 3.1; names of Linux).
LATER = ("is empty", 'has no "name"', "is longer than 15", "contains a space, '/', ':' or '%'")


def summarize(selections) -> list[list]:
    return [[s.namespace, s.name, s.interface, s.has_default_route] for s in selections]


@pytest.mark.parametrize("text", [text for text, answer in ANSWERS if answer is not None])
def test_a_networks_annotation_that_multus_accepts_is_read_as_by_multus_or_refused(text):
    networks = dict(ANSWERS)[text]
    try:
        parsed = summarize(network_selection.parse_networks(text, "team"))
    except network_selection.InvalidNetworksError as error:
        parsed = error.problem
    is_later = isinstance(parsed, str) and any(word in parsed for word in LATER)
    assert is_later or parsed == [[*network, gateways != -1] for *network, gateways in networks]


@pytest.mark.parametrize("text", [text for text, answer in ANSWERS if answer is None])
def test_attachments_that_multus_rejects_are_refused_or_kept_unchanged_before_the_added_ones(text):
    try:
        theirs = network_selection.parse_networks(text, "team")
    except network_selection.InvalidNetworksError:
        return
    ours = (network_selection.Selection("prod", "lan.2"),)
    assert network_selection.merge_networks(text, theirs, ours).selections == (*theirs, *ours)


def test_a_repeated_key_with_null_keeps_the_earlier_string_as_in_go():
    """The result was recorded from Multus 4.2.3."""
    (selection,) = network_selection.parse_networks('[{"name":"a","interface":"x","interface":null}]', "team")
    assert selection.interface == "x"
