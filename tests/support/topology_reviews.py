"""Reviews of workloads under a policy with a topology, and the fields that are written into them."""

import copy
import json

import admitting
import jsonpatch
import working

LEAF, SPINE = "example.com/leaf", "example.com/spine"
TOPOLOGY = "railwright.io/topology"
JOB = working.get_kind("Job.batch")


def review(tree, by, row=JOB, **request):
    return working.get_response(working.review(row, tree, **request), by)


def create(tree, by, row=JOB, **request):
    """Return the workload after its review, by default that of its creation, and the warnings."""
    response = review(tree, by, row, **request)
    assert response["allowed"], response
    patched = jsonpatch.apply_patch(copy.deepcopy(tree), admitting.decode_operations(response))
    return patched, response.get("warnings", [])


def ask(mode="required", domains=(LEAF, SPINE), segment=1):
    """Return a policy whose gangs get a topology of these domains, with segments of `segment` ranks in the closest."""
    nvlink = f"    nvlinkSegment: {segment}\n" if segment > 1 else ""
    listed = ", ".join(f'"{key}"' for key in domains)
    return admitting.fabric(f"    placement: {{domains: [{listed}], gangTopology: {mode}}}\n{nvlink}")


def read_topology(holder):
    """Return the record in the pod template of a spec or task."""
    return json.loads(holder["template"]["metadata"]["annotations"][TOPOLOGY])
