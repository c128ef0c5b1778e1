//go:build ignore

package v1beta1

// QueueAllocationGateKey is the only symbol that Volcano v1.15.1 needs and volcano.sh/apis v1.14.0 lacks.
// The Go module proxy serves no later version of volcano.sh/apis, so build.py adds this file to a copy of v1.14.0.
const QueueAllocationGateKey = GroupName + "/queue-allocation-gate"
