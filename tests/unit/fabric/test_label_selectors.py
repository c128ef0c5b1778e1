"""Selectors of `-l` are read as kubectl reads them."""

import pytest

from railwright.fabric import label_selectors

LABELS = {"app": "llama", "tier": "prod", "volcano.sh/job-name": "train", "empty": ""}


@pytest.mark.parametrize(
    ("text", "is_match"),
    [
        ("app=llama", True),
        ("app==llama", True),
        ("app = llama , tier = prod", True),
        ("app=llama,tier=dev", False),
        ("app!=llama", False),
        ("absent!=x", True),
        ("tier in (dev, prod)", True),
        ("tier notin (dev,prod)", False),
        ("absent notin (dev)", True),
        ("volcano.sh/job-name", True),
        ("!volcano.sh/job-name", False),
        ("! absent", True),
        ("absent", False),
        ("empty=", True),
        ("app=", False),
        ("in=x", False),
        ("", True),
    ],
)
def test_a_selector_matches(text, is_match):
    assert label_selectors.matches({}, label_selectors.parse(text), LABELS) is is_match


@pytest.mark.parametrize(
    "text", [",", "a,", ",a", "a b", "a=b=c", "a in b", "a in (b", "=x", "!", "a>1", "a in (b,!c)", "-a", "a==", "a=-b"]
)
def test_an_invalid_selector_is_an_error(text):
    if text == "a==":
        assert label_selectors.parse(text) == [label_selectors.Expression("a", "In", ("",))]
        return
    with pytest.raises(ValueError, match="cannot be read"):
        label_selectors.parse(text)
