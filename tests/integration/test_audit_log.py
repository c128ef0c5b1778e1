"""Entries of the webhook in the API server's audit log."""

from plane import api, audit_log, manifests

POLICY = manifests.policy({"ib": manifests.fabric()})
UNPLACED = {"schedulerName": "nobody", "terminationGracePeriodSeconds": 0}


async def test_the_audit_log_has_changes_and_refusals(plane, namespace, installed):
    for name, label in (("in", "ib"), ("out", "ibb")):
        try:
            await plane.api.create(manifests.pod(name, label, **UNPLACED), namespace=namespace)
        except api.ApiError:
            assert name == "out"

    def entries() -> list[dict]:
        lines = audit_log.read(plane.parts.audit_log)
        ours = [line for line in lines if line.get("objectRef", {}).get("namespace") == namespace]
        return [line for line in ours if line["objectRef"].get("name") in ("in", "out")]

    def read_annotations(entry: dict) -> dict:
        prefix = "pods.railwright.io/"
        annotations = entry["annotations"]
        return {key.removeprefix(prefix): value for key, value in annotations.items() if key.startswith(prefix)}

    def find_annotations(code: int) -> dict:
        return next(
            read_annotations(entry)
            for entry in entries()
            if entry["responseStatus"]["code"] == code and read_annotations(entry)
        )

    admitted, refused = find_annotations(201), find_annotations(403)
    changes = admitted.pop("changes")
    assert admitted == {"fabric": "ib", "role": "worker", "rails": "rail0"}
    assert int(changes) > 0
    assert refused == {"fabric": "unknown", "role": "worker", "refused": "unknown-fabric"}
