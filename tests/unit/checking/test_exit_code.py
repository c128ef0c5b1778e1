"""The exit code of `railwright check`, by its results."""

import pytest

from railwright.cli.checking import check_rows, command

OK, WARNED, FAILED, UNREAD = (
    check_rows.Result("group", "row", "a row", "", state, "detail", "", unread=unread)
    for state, unread in (
        (check_rows.State.OK, False),
        (check_rows.State.WARN, False),
        (check_rows.State.FAIL, False),
        (check_rows.State.SKIP, True),
    )
)
UNREACHABLE = check_rows.Result("group", "row", "a row", "", check_rows.State.FAIL, "detail", "", unread=True)


@pytest.mark.parametrize(
    ("results", "options", "code"),
    [
        ([OK, WARNED], {}, 0),
        ([OK, WARNED], {"strict": True}, 1),
        ([OK, FAILED, UNREAD], {}, 1),
        ([OK, UNREAD], {}, 2),
        ([OK, UNREAD], {"allow_unread": True}, 0),
        ([OK, FAILED, UNREAD], {"allow_unread": True}, 1),
        ([UNREACHABLE], {"allow_unread": True}, 2),
    ],
)
def test_exit_codes_differ_for_failures_and_unread_objects(results, options, code):
    assert command._get_exit_code(results, **{"strict": False, "allow_unread": False} | options) == code
