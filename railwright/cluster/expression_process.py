"""Evaluates expressions of DeviceClasses and of the policy in a process of its own, with a limit of CPU time for each.

The process runs for as long as there are questions, or until its own CPU time is over, and ends. An expression whose
CPU time is over ends it: what was answered before stays, the expression is unknown for all devices that were asked for,
and another process goes on.
"""

import asyncio
import itertools
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from railwright.cluster import bounded_process
from railwright.fabric import bounded_cache
from railwright.fabric.claims import cel_programs, evaluations
from railwright.fabric.claims.comparisons import Match

_SECONDS_OF_EXPRESSION = 0.5  # CPU time for all devices of one run; an evaluation of a driver's takes 30 us
_SECONDS_OF_RUN = 20.0  # CPU time, after which another run goes on
_SECONDS = 120.0  # of one run; on a busy host it waits for the processor most of the time
_MOST_MEMORY = 512 << 20  # bytes of address space, most of it libraries that are mapped and not used
_MAX_QUESTIONS = 4096  # of one run
_INTERVAL_SECONDS = 0.2
_RETRY_SECONDS = 10.0  # after a failure of the process; until then the devices are unknown
_JOB = bounded_process.Job("railwright.cluster.expression_process", "evaluates expressions")

_LOG = logging.getLogger("railwright.cluster")

Answers = Mapping[int, evaluations.Result]

_encode = msgspec.msgpack.Encoder().encode
_cached_results: bounded_cache.BoundedCache[bytes, evaluations.Result] = bounded_cache.BoundedCache(_MAX_QUESTIONS)
_questions = msgspec.msgpack.Decoder(tuple[float, list[evaluations.Question]])
_answer = msgspec.json.Decoder(tuple[int, evaluations.Result])


async def answer(
    questions: Sequence[evaluations.Question], seconds_of_expression: float = _SECONDS_OF_EXPRESSION
) -> Answers:
    """Return answers to the first of these questions. Raises ProcessError if there is none."""
    asked = _choose(questions)
    try:
        return _read(await _JOB.run(msgspec.msgpack.encode((seconds_of_expression, asked)), _SECONDS))
    except bounded_process.ProcessError as error:
        return _blame(asked, error)


def _answer_now(questions: Sequence[evaluations.Question]) -> Answers:
    asked = _choose(questions)
    try:
        return _read(_JOB.run_now(msgspec.msgpack.encode((_SECONDS_OF_EXPRESSION, asked)), _SECONDS))
    except bounded_process.ProcessError as error:
        return _blame(asked, error)


async def keep_answering(
    list_questions: Callable[[], Sequence[evaluations.Question]], apply: Callable[[Answers], object]
) -> None:
    """Answer questions until cancelled. All that there are at one time are applied together."""
    while True:
        questions = list_questions()
        if not questions:
            await asyncio.sleep(_INTERVAL_SECONDS)
            continue
        try:
            apply(await _answer_each(questions))
        except bounded_process.ProcessError as error:
            _LOG.warning("expressions not evaluated", extra={"fields": {"error": str(error), "count": len(questions)}})
            await asyncio.sleep(_RETRY_SECONDS)


async def _answer_each(questions: Sequence[evaluations.Question]) -> Answers:
    answers: dict[int, evaluations.Result] = {}
    while remaining := [question for question in questions if question.number not in answers]:
        answers.update(await answer(remaining))
    return answers


def answer_all(questions: Sequence[evaluations.Question]) -> Answers:
    """Return answers to all questions, and block until they are there. A failure of the process is an answer.

    A command asks the same for several of its rows, so answers are kept: the start of a process takes half a second.
    """
    keys = {question.number: _encode((question.expression, question.driver, question.device)) for question in questions}
    answers = {number: result for number, key in keys.items() if (result := _cached_results.get(key)) is not None}
    new = _answer_new([question for question in questions if question.number not in answers])
    for number, result in new.items():
        _cached_results.add(keys[number], result)
    return {**answers, **new}


def _answer_new(questions: Sequence[evaluations.Question]) -> Answers:
    answers: dict[int, evaluations.Result] = {}
    while remaining := [question for question in questions if question.number not in answers]:
        try:
            answers.update(_answer_now(remaining))
        except bounded_process.ProcessError as error:
            unknown = evaluations.Result(Match.UNKNOWN, str(error))
            answers.update((question.number, unknown) for question in remaining)
    return answers


def _choose(questions: Sequence[evaluations.Question]) -> Sequence[evaluations.Question]:
    return sorted(questions[:_MAX_QUESTIONS], key=lambda question: (question.expression, question.number))


def _read(output: bytes) -> Answers:
    """Return the complete lines of a process's output."""
    return dict(map(_answer.decode, output.splitlines()[: output.count(b"\n")]))


def _blame(asked: Sequence[evaluations.Question], error: bounded_process.ProcessError) -> Answers:
    """Return the answers before a process ended, and that the expression is unknown which ended it.

    A process that has answered everything may still exceed its time: on a busy host its exit takes seconds.
    """
    answers = dict(_read(error.output))
    unanswered = [question for question in asked if question.number not in answers]
    if not unanswered:
        return answers
    if not answers and not isinstance(error, bounded_process.ExceededError):
        raise error
    culprit = unanswered[0].expression
    unknown = evaluations.Result(Match.UNKNOWN, f"was not evaluated: {error}")
    blamed = {question.number: unknown for question in unanswered if question.expression == culprit}
    return {**answers, **blamed}


def main() -> int:
    """Read questions from standard input, and write a line for each answer to the standard output."""
    bounded_process.limit(_MOST_MEMORY)
    seconds, questions = _questions.decode(sys.stdin.buffer.read())
    for _, group in itertools.groupby(questions, lambda question: question.expression):
        bounded_process.limit_cpu_time(seconds)
        for line in _evaluate(group):
            os.write(sys.stdout.fileno(), line)  # not buffered: the process may end at any time
        if time.process_time() > _SECONDS_OF_RUN:
            break
    return 0


def _evaluate(questions: Iterator[evaluations.Question]) -> Iterator[bytes]:
    for question in questions:
        result = cel_programs.evaluate(question.expression, question.device, question.driver)
        yield msgspec.json.encode((question.number, result)) + b"\n"


if __name__ == "__main__":
    sys.exit(main())
