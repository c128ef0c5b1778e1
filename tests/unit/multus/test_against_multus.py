"""Compares our parser of Multus's annotation with a port of Multus, and the port with recorded results of Multus."""

import json

import admitting
import exploration
import multus
import pytest
import selections
from hypothesis import assume, given
from hypothesis import strategies as st

from railwright.fabric.multus import annotation, element, network_selection

ANSWERS = json.loads((admitting.ROOT / "tests" / "data" / "multus" / "answers.json").read_text())
OURS = st.lists(
    st.builds(
        network_selection.Selection,
        selections.LABELS,
        st.one_of(selections.LABELS, st.just("lan.2")),
        st.sampled_from(["", "r0", "x,y"]),
    ),
    max_size=4,
)
# Accepted by Multus's parser, but the pod would fail later: rejected at admission (interface.md 3.1; names of Linux).
LATER = ("is empty", 'has no "name"', "is longer than 15", "contains a space, '/', ':' or '%'")


def merge(text, ours, namespace):
    return annotation.merge(text, annotation.parse(text, namespace), tuple(ours))


def parse_by_port(text: str) -> list[multus.Network] | None:
    try:
        return multus.read(text, "team")
    except multus.RejectedError:
        return None


def summarize(selections) -> list[multus.Network]:
    return [(s.namespace, s.name, s.interface, -1 if s.gateways is None else len(s.gateways)) for s in selections]


def ours_of(text: str) -> tuple[network_selection.Selection, ...] | network_selection.InvalidNetworksError:
    try:
        return annotation.parse(text, "team")
    except network_selection.InvalidNetworksError as error:
        return error


def only_later(error: network_selection.InvalidNetworksError) -> bool:
    return any(word in error.problem for word in LATER)


@pytest.mark.parametrize("accepted", [True, False])
def test_the_port_gives_the_recorded_results_of_multus(accepted):
    asked = [(text, said) for text, said in ANSWERS if (said is not None) is accepted]
    assert len(asked) >= 200
    for text, said in asked:
        assert parse_by_port(text) == (None if said is None else [tuple(network) for network in said]), text


def test_recorded_annotations_are_read_as_by_multus():
    for text, said in ANSWERS:
        parsed = ours_of(text)
        if isinstance(parsed, network_selection.InvalidNetworksError):
            assert said is None or only_later(parsed), (text, parsed)
        else:
            assert said is not None, text
            assert summarize(parsed) == [tuple(network) for network in said], text


@exploration.wide
@given(selections.TEXTS)
def test_annotations_are_rejected_and_accepted_as_by_multus(text):
    expected = parse_by_port(text)
    parsed = ours_of(text)
    if isinstance(parsed, network_selection.InvalidNetworksError):
        assert expected is None or only_later(parsed), parsed
    else:
        assert summarize(parsed) == expected


@exploration.wide
@given(selections.LISTS)
def test_a_refused_list_names_the_first_item_that_multus_rejects(text):
    assume(not annotation.is_json(text))
    error = ours_of(text)
    if isinstance(error, network_selection.InvalidNetworksError):
        before, culprit = text.split(",")[: error.position - 1], text.split(",")[error.position - 1]
        assert all(parse_by_port(item) for item in before)
        assert not parse_by_port(culprit) or only_later(error)


@exploration.wide
@given(selections.arrays())
def test_a_refused_array_names_the_first_object_that_multus_rejects(text):
    assume(annotation.is_json(text))
    error = ours_of(text)
    if isinstance(error, network_selection.InvalidNetworksError):
        entries = _entries(text)
        assert (error.position == 0) is (entries is None)
        for entry in (entries or [])[: error.position - 1]:
            assert annotation.parse(f"[{entry}]", "team")
        if entries is not None:
            assert isinstance(ours_of(f"[{entries[error.position - 1]}]"), network_selection.InvalidNetworksError)


@exploration.wide
@given(selections.TEXTS, OURS)
def test_whatever_multus_accepts_survives_unchanged_in_front_and_in_order(text, ours):
    before = parse_by_port(text)
    try:
        merged = merge(text, ours, "team")
    except network_selection.InvalidNetworksError:
        return
    assert before is not None
    after = parse_by_port(merged.text)
    assert after == summarize(merged.selections)
    assert after[: len(before)] == before
    if annotation.is_json(text):  # every byte: unknown keys, keys written twice, numbers as they are spelt
        head = text.rstrip()[:-1]
        assert merged.text.startswith(head)
        assert _pairs(merged.text)[: len(before)] == _pairs(text)
    elif not annotation.is_json(merged.text):
        assert merged.text.startswith(text)
    assert len(after) == len(before) + merged.added
    assert merge(merged.text, ours, "team") == annotation.Merged(merged.text, merged.selections, 0)


def test_null_after_a_value_empties_a_list_and_leaves_a_string_as_go_does():
    """Both results were recorded from Multus 4.2.3."""
    (emptied,) = annotation.parse('[{"name":"a","default-route":["10.0.0.1"],"Default-Route":null}]', "team")
    (without_interface,) = annotation.parse('[{"name":"a","interface":"x","interface":null}]', "team")
    assert summarize([emptied, without_interface]) == [("team", "a", "", -1), ("team", "a", "x", -1)]


def _pairs(text: str) -> list:
    return element.decode(text) if text else []


def _entries(text: str) -> list[str] | None:
    """Return the objects of an array, as texts; None if it is no array."""
    decoder = json.JSONDecoder()
    try:
        json.loads(text)
    except ValueError:
        return None
    if not text.lstrip().startswith("["):
        return None
    entries, at = [], text.index("[") + 1
    while True:
        while text[at] in " \t\r\n,":
            at += 1
        if text[at] == "]":
            return entries
        _, end = decoder.raw_decode(text, at)
        entries.append(text[at:end])
        at = end
