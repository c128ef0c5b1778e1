"""The page of Events has every reason that a server posts."""

import pages

from documentation import reference
from extender import cluster_reports, gang_events
from webhook import object_events


def list_reasons(module) -> set[str]:
    return {value for name, value in vars(module).items() if name.isupper() and isinstance(value, str)} - {""}


def test_every_reason_of_an_event_is_on_the_page():
    posted = {
        reason
        for module in (object_events, gang_events, cluster_reports)
        for reason in list_reasons(module)
        if reason[0].isupper() and reason.isalpha()
    }
    assert len(posted) == 14
    assert {row.reason for row in reference.EVENTS} == posted
    page = (pages.DOCS / "reference" / "events.md").read_text()
    assert all(f"`{reason}`" in page for reason in posted)
    posting = [path for name in ("webhook", "extender") for path in (pages.ROOT / name).glob("*_events.py")]
    assert len(posting) == 2
    assert not [path for path in posting if 'reason="' in path.read_text()], "a reason without a name"
