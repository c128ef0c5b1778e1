"""Commands that upgrade a Helm release: none drops the values with which it was installed."""

import re

import pytest
from pages import ROOT

PAGES = sorted((*ROOT.glob("docs/**/*.md"), ROOT / "README.md", *ROOT.glob("manifests/**/*.md")))
_COMMAND = re.compile(r"helm upgrade \S+ \S(?:.*\\\n)*.*")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_an_upgrade_keeps_the_values(page):
    for command in _COMMAND.findall(page.read_text().replace("upgrade --install", "upgrade")):
        assert "--reset-then-reuse-values" in command or "--values" in command, command
