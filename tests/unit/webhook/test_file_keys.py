"""The webhook tests repeatedly whether the API server keeps `fileKeyRef`."""

import asyncio
import contextlib
import logging

import pytest

from railwright.cluster import errors
from webhook import file_keys, state

NEW, OLD = b'{"fileKeyRef": {}}', b"{}"
INVALID = errors.ApiError(422, "Invalid", "valueFrom: must specify one of", "/podtemplates")
LOST = errors.UnreachableError("no answer")


class Api:
    """An API server with a sequence of answers to dry runs; the last one repeats."""

    def __init__(self, *answers):
        self.answers = [*answers]
        self.asked = 0
        self.at_last = asyncio.Event()  # set with the last answer

    async def post(self, _path, _body):
        self.asked += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if self.answers == [answer]:
            self.at_last.set()
        if isinstance(answer, Exception):
            raise answer
        return answer


async def run(reader: file_keys.SupportCheck, api: Api) -> None:
    task = asyncio.create_task(reader.run())
    async with asyncio.timeout(5):
        await api.at_last.wait()
        await asyncio.sleep(0.01)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


@pytest.mark.parametrize(
    ("answers", "at_first", "at_last"),
    [
        ([LOST, LOST, NEW], False, True),
        ([OLD, NEW], False, True),
        ([NEW, LOST], True, True),
        ([NEW, OLD], True, False),
        ([NEW, INVALID], True, False),
    ],
    ids=["an error at the start", "an upgrade", "an error later", "a downgrade", "a downgrade that rejects it"],
)
async def test_the_answer_is_read_again_and_an_error_changes_nothing(answers, at_first, at_last, monkeypatch):
    monkeypatch.setattr(file_keys, "_PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(file_keys, "_RETRY_SECONDS", 0.001)
    api, known = Api(*answers), state.State()
    reader = file_keys.SupportCheck(api, known.set_file_keys)
    await reader.read()
    assert known.build_facts("x").file_keys is at_first
    await run(reader, api)
    assert known.build_facts("x").file_keys is at_last


async def test_after_an_error_the_next_request_is_sooner_and_one_line_is_logged(monkeypatch, caplog):
    monkeypatch.setattr(file_keys, "_RETRY_SECONDS", 0.001)
    api, known = Api(LOST, LOST, LOST, NEW), state.State()
    with caplog.at_level(logging.WARNING):
        reader = file_keys.SupportCheck(api, known.set_file_keys)
        await reader.read()
        await run(reader, api)
    assert api.asked == 4
    assert len([entry for entry in caplog.records if "fileKeyRef" in entry.message]) == 1
