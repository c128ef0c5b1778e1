"""Compares our parser of Multus's annotation with recorded results of Multus (tests/data/multus)."""

import json

import admitting
import pytest

from railwright.fabric.multus import network_selection

ANSWERS = json.loads((admitting.ROOT / "tests" / "data" / "multus" / "answers.json").read_text())
# Accepted by Multus's parser, but the pod would fail later: rejected at admission (interface.md 3.1; names of Linux).
LATER = ("is empty", 'has no "name"', "is longer than 15", "contains a space, '/', ':' or '%'")


def summarize(selections) -> list[list]:
    return [[s.namespace, s.name, s.interface, s.has_default_route] for s in selections]


@pytest.mark.parametrize("text", [text for text, answer in ANSWERS if answer is not None])
def test_a_value_that_multus_accepts_is_read_as_by_multus_or_refused(text):
    networks = dict(ANSWERS)[text]
    try:
        parsed = summarize(network_selection.parse(text, "team"))
    except network_selection.InvalidNetworksError as error:
        parsed = error.problem
    is_later = isinstance(parsed, str) and any(word in parsed for word in LATER)
    assert is_later or parsed == [[*network, gateways != -1] for *network, gateways in networks]


@pytest.mark.parametrize("text", [text for text, answer in ANSWERS if answer is None])
def test_a_value_that_multus_rejects_is_refused_or_stays_first_unchanged(text):
    try:
        theirs = network_selection.parse(text, "team")
    except network_selection.InvalidNetworksError:
        return
    ours = (network_selection.Selection("prod", "lan.2"),)
    assert network_selection.merge(text, theirs, ours).selections == (*theirs, *ours)


def test_a_repeated_key_with_null_keeps_the_earlier_string_as_in_go():
    """The result was recorded from Multus 4.2.3."""
    (selection,) = network_selection.parse('[{"name":"a","interface":"x","interface":null}]', "team")
    assert selection.interface == "x"
