"""Commands on pages that change an installation: none of them breaks one that is in use."""

import re

import pytest
from pages import ROOT

PAGES = sorted((*ROOT.glob("docs/**/*.md"), ROOT / "README.md", *ROOT.glob("manifests/**/*.md")))
_COMMAND = re.compile(r"helm upgrade \S+ \S(?:.*\\\n)*.*")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_an_upgrade_keeps_the_values(page):
    for command in _COMMAND.findall(page.read_text().replace("upgrade --install", "upgrade")):
        assert "--reset-then-reuse-values" in command or "--values" in command, command


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_page_applies_the_plain_manifests(page):
    """They name the image railwright:latest, which would replace the image of an installation."""
    assert "kubectl apply -k manifests/base" not in page.read_text()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_page_deletes_the_webhooks_before_the_bindings(page):
    """The bindings alone reject every labelled pod."""
    text = page.read_text()
    webhooks, bindings = (
        [match.start() for match in re.finditer(rf"kubectl delete {kind}", text)]
        for kind in ("mutatingwebhookconfiguration", "validatingadmissionpolicybinding")
    )
    assert not webhooks or (bindings and min(bindings) < min(webhooks))
    assert "delete the webhook configuration" not in text
