"""Paths, and bodies that are not valid requests for them."""

import copy
import json

WEBHOOK = ("/mutate/pods", "/mutate/workloads", "/validate/policy")
EXTENDER = (
    "/scheduler/filter",
    "/scheduler/prioritize",
    "/volcano/prioritize",
    "/volcano/predicate",
    "/volcano/allocate",
    "/volcano/deallocate",
    "/volcano/east/prioritize",
    "/volcano/east/allocate",
)
ENDS = "/volcano/session-close"  # whose body says nothing: any JSON object will do
BODIES = {
    "empty": b"",
    "not JSON": b"{",
    "null": b"null",
    "a list": b"[]",
    "a number": b"12345678901234567890123456789012345678901234567890",
    "too deep": b'{"a":' * 20_000,
    "not UTF-8": b'{"kind": "\xff\xfe"}',
    "a lone surrogate": b'{"request": "\\ud800"}',
    "NaN": b'{"task": NaN}',
    "of another shape": b'{"task": 1, "Pod": 1, "request": 1, "kind": 1}',
}


def reviews(good: dict) -> dict[str, bytes]:
    """Return reviews with one error each, made from a valid one."""

    def change(**changes: object) -> bytes:
        tree = copy.deepcopy(good)
        for path, value in changes.items():
            at, *steps = tree, *path.split("__")
            for step in steps[:-1]:
                at = at[step]
            at[steps[-1]] = value
        return json.dumps(tree).encode()

    text = json.dumps(good).encode()
    return {
        "no request": change(request=None),
        "another kind": change(kind="Pod"),
        "v1beta1": change(apiVersion="admission.k8s.io/v1beta1"),
        "5,000 digits": change(request__object__spec__securityContext={"runAsUser": 0}).replace(
            b'"runAsUser": 0', b'"runAsUser": ' + b"9" * 5000
        ),
        "NaN inside": text[:-1] + b', "n": NaN}',
        "a bomb inside": change(request__object=None).replace(b'"object": null', b'"object": ' + b"[" * 20_000),
        "a surrogate inside": change(request__uid="SURROGATE").replace(b"SURROGATE", b"\\ud800"),
        "cut off": text[:-2],
    }
