"""The webhook tests repeatedly whether the API server keeps `fileKeyRef`."""

import asyncio
import logging

import pytest

from railwright.cluster import errors
from webhook import file_keys

INVALID = errors.ApiError(422, "Invalid", "valueFrom: must specify one of", "/podtemplates")
LOST = errors.UnreachableError("no answer")


class Api:
    """An API server with a sequence of answers to dry runs."""

    def __init__(self, *answers):
        self.answers = [*answers]

    async def post(self, _path, _body):
        if not self.answers:
            raise asyncio.CancelledError
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


async def test_the_last_answer_about_file_keys_counts_while_the_api_server_fails(monkeypatch, caplog):
    monkeypatch.setattr(file_keys, "_PAUSE_SECONDS", 0.0)
    api, applied = Api(LOST, b"{}", b'{"fileKeyRef": {}}', LOST, INVALID), []
    with caplog.at_level(logging.WARNING), pytest.raises(asyncio.CancelledError):
        await file_keys.watch_support(api, applied.append)
    assert applied == [False, True, False]
    assert len([entry for entry in caplog.records if "fileKeyRef" in entry.message]) == 2
