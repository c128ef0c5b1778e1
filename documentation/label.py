"""Shows the effect of one label on a pod in twelve lines: the demo's pod before and after admission, shortened."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from documentation import examples, markdown
from railwright.fabric import names

_DEMO = markdown.ROOT / "railwright" / "cli" / "demo"
_NETWORKS = "k8s.v1.cni.cncf.io/networks"
_GPU = "nvidia.com/gpu"


def format_pod_diff() -> str:
    """Return the pod as a diff in Markdown. Admission adds the lines with +, and replaces the one with -."""
    preview = examples.preview_admission((_DEMO / "job.yaml").read_text(encoding="utf-8"), _DEMO / "policy.yaml")
    return "\n".join(["```diff", *_list_lines(preview.before, preview.after), "```"])


def _list_lines(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    (written,), (container,) = before["spec"]["containers"], after["spec"]["containers"]
    metadata = after["metadata"]
    added = {name: 1 for name in container["resources"]["limits"] if name not in written["resources"]["limits"]}
    mounts = [mount["mountPath"] for mount in container["volumeMounts"]]
    rights = container["securityContext"]["capabilities"]["add"]
    networks = metadata["annotations"][_NETWORKS].split(",")
    variables = sorted((entry["name"] for entry in container["env"]), key=lambda name: not name.startswith("NCCL_IB_"))
    gpus = f"{_GPU}: {written['resources']['limits'][_GPU]}"
    yield "  metadata:"
    yield f"    labels: {{{names.FABRIC}: {metadata['labels'][names.FABRIC]}}}"
    yield f"+   annotations: {{{_NETWORKS}: {_shorten_list(networks)}}}"
    yield "  spec:"
    yield f"+   initContainers: [{', '.join(item['name'] for item in after['spec']['initContainers'])}]"
    yield "    containers:"
    yield f"    - name: {container['name']}"
    yield f"-     resources: {{limits: {{{gpus}}}}}"
    yield f"+     resources: {{limits: {{{gpus}, {_shorten_list([f'{name}: 1' for name in added])}}}}}"
    yield f"+     env: [{_shorten_list(variables, 3)}]"
    yield f"+     volumeMounts: [{', '.join(mounts)}]"
    yield f"+     securityContext: {{capabilities: {{add: [{', '.join(rights)}]}}}}"


def _shorten_list(values: Sequence[str], most: int = 1) -> str:
    """Return the first values, and the number of the others."""
    left = len(values) - most
    return ", ".join(values[:most]) + (f", and {left} more" if left > 0 else "")
