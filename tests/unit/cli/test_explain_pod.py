"""`explain pod`: what is printed of the extender's explanation."""

import msgspec
import pytest
from rich.console import Console

from railwright.cli.explanation import pod

REJECTED = {"node": "gpu-1", "rejection": {"code": "NoRails", "message": "rail0 has 0 of 1 free"}}
SCORED = {"node": "gpu-2", "score": 76.0}


@pytest.mark.parametrize(
    ("nodes", "candidates", "summary"),
    [
        ([REJECTED, REJECTED], 2, "2 of 2 nodes: 0 fit, 2 rejected"),
        ([SCORED, REJECTED], 2, "2 of 2 nodes: 1 fit, 1 rejected"),
        ([SCORED, REJECTED], 1, "2 of 2 nodes: 1 fit, 1 rejected"),
        ([SCORED, REJECTED], 5000, "2 of 5000 nodes: 1 fit, 1 rejected"),
    ],
)
def test_nodes_that_fit_and_rejected_ones_are_counted_apart(nodes, candidates, summary):
    body = msgspec.json.encode({"pod": "train/llm-0", "candidate_nodes": candidates, "nodes": nodes})
    console = Console(record=True, width=160)
    console.print(pod.render(pod.read(body)))
    assert console.export_text().rstrip().splitlines()[-1].strip() == summary
