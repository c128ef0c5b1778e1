"""Ask Multus about generated values and keep its answers: record.py ORACLE [HOW MANY]. README.md says what for."""

import json
import pathlib
import subprocess
import sys

import multus
import selections
from hypothesis import HealthCheck, Phase, given, settings

HERE = pathlib.Path(__file__).parent
ROWS = 400  # answers in the table, half of them rejections


def main(oracle: str, count: int = 20_000) -> int:
    asked: dict[str, None] = {}

    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(selections.TEXTS)
    def ask(text: str) -> None:
        asked.setdefault(text)

    ask()
    questions = "".join(json.dumps({"text": text, "namespace": "team"}) + "\n" for text in asked)
    lines = subprocess.run([oracle], input=questions, capture_output=True, text=True, check=True).stdout.split("\n")[
        :-1
    ]
    answers = [(text, json.loads(line).get("networks")) for text, line in zip(asked, lines, strict=True)]
    differing = [(text, said) for text, said in answers if said != parse_by_port(text)]
    for text, said in differing[:20]:
        print(f"{text!r}\n  Multus: {said}\n  ported: {parse_by_port(text)}")
    print(f"{len(answers)} asked, {sum(said is not None for _, said in answers)} accepted, {len(differing)} differ")
    sample = []
    for accepted in (True, False):
        some = [answer for answer in answers if (answer[1] is not None) is accepted and len(answer[0]) < 200]
        sample += some[:: max(1, len(some) // (ROWS // 2))][: ROWS // 2]
    rows = ",\n".join(json.dumps(answer, ensure_ascii=False) for answer in sample)
    (HERE / "answers.json").write_text(f"[\n{rows}\n]\n")
    return bool(differing)


def parse_by_port(text: str) -> list | None:
    try:
        return [list(network) for network in multus.read(text, "team")]
    except multus.RejectedError:
        return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], *map(int, sys.argv[2:])))
