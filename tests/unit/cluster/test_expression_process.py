"""Expressions are evaluated in another process, which ends when one of them takes too long."""

import os

import cpu_time
import pytest
import selecting

from railwright.cluster import bounded_process, expression_process
from railwright.fabric.claims import evaluations
from railwright.fabric.claims.comparisons import Match

QUICK = 'device.driver + "" == "x" || device.driver.matches("^d$")'
SLOW = "device.driver.matches('" + "(a|b|c|d)?" * 20 + "')"
COSTLY = [
    # valid in Kubernetes and cheap there: it compiles the constant pattern once
    f"{list(range(60))}.all(a, {list(range(60))}.all(b, 'xy'.matches('(x|y|z|[a-z]){{1000}}') || a >= 0))",
    "'" + "a" * 5000 + "'.matches('" + "(a*)*" * 900 + "b')",
    "(" * 9000 + "true" + ")" * 9000,
    " || ".join(["device.driver == 'x'"] * 450),
    "[" * 4000 + "]" * 4000 + " == []",
]


def ask(*expressions, driver="d", number=1):
    device = selecting.offer({"driver": driver})
    return [
        evaluations.Question(position * number + copy, expression, driver, device.device)
        for position, expression in enumerate(expressions)
        for copy in range(number)
    ]


async def test_each_question_gets_an_answer():
    questions = ask('device.driver.matches("^d$")', 'device.driver.matches("^e$")', "sets.contains([1], [1])", QUICK)
    answers = await expression_process.answer(questions)
    assert [answers[number].match for number in range(4)] == [Match.YES, Match.NO, Match.UNKNOWN, Match.UNKNOWN]


async def test_a_slow_expression_is_unknown_and_a_new_process_evaluates_the_next():
    questions = [
        *ask(SLOW, number=4000),
        evaluations.Question(9999, "device.driver.size() == 1 && 1 + 1 == 2", "d", selecting.offer({}).device),
    ]
    before = cpu_time.measure_children()
    answers = await expression_process.answer(questions, 0.05)
    assert cpu_time.measure_children() - before < 5
    unknown = [answer for number, answer in answers.items() if number < 9999 and answer.match is Match.UNKNOWN]
    assert "too much CPU time" in unknown[-1].cause
    assert set(range(4000)) <= set(answers), "all questions about it are answered"
    rest = [question for question in questions if question.number not in answers]
    if rest:
        answers = {**answers, **await expression_process.answer(rest)}
    assert answers[9999].match is Match.YES


@pytest.fixture
def run_program(tmp_path, monkeypatch):
    """`run_program(text)`: evaluate expressions by this program."""

    def run(text):
        (tmp_path / "program.py").write_text(f"from railwright.cluster import expression_process\n{text}\n")
        monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
        monkeypatch.setattr(expression_process, "_JOB", bounded_process.Job("program", "evaluates expressions"))

    return run


async def test_all_answers_count_if_the_process_takes_too_long_to_exit(run_program):
    """Such a process blames no expression, and is not asked again."""
    run_program("expression_process.main()\nwhile True: pass")
    answers = await expression_process.answer(ask("1 + 1 == 3", number=2), 0.5)
    assert [(answer.match, answer.cause) for answer in answers.values()] == [(Match.NO, "")] * 2


async def test_a_process_ends_after_its_cpu_time_and_another_goes_on(run_program):
    run_program("expression_process._SECONDS_OF_RUN = 0\nexpression_process.main()")
    questions = ask("1 + 1 == 2", "1 + 1 == 3", number=2)
    assert (await expression_process.answer(questions)).keys() == {0, 1}
    answers = expression_process.answer_all(questions)
    assert [answers[number].match for number in range(4)] == [Match.YES, Match.YES, Match.NO, Match.NO]


@pytest.mark.parametrize("expression", COSTLY, ids=range(len(COSTLY)))
def test_a_costly_expression_is_answered_in_time(expression):
    before = cpu_time.measure_children()
    answers = expression_process.answer_all(ask(expression))
    assert len(answers) == 1
    assert cpu_time.measure_children() - before < 4, "seconds of CPU time, with the start of Python"


def test_a_process_that_cannot_run_leaves_the_devices_unknown(monkeypatch):
    monkeypatch.setattr(expression_process, "_JOB", bounded_process.Job("railwright.absent", "evaluates expressions"))
    answers = expression_process.answer_all(ask(QUICK, SLOW))
    assert {answer.match for answer in answers.values()} == {Match.UNKNOWN}
    assert "No module named railwright.absent" in answers[0].cause


async def test_a_process_that_takes_too_long_is_killed():
    job = bounded_process.Job(
        "http.server",
        "serves",
    )
    with pytest.raises(bounded_process.ExceededError, match=r"the process that serves took more than 0\.2 s"):
        await job.run(b"", 0.2)
