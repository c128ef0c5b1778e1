// Evaluates CEL selectors of devices as Kubernetes does, with its own compiler.
//
// Each line of the standard input is an expression and devices; each line of the output has the results for these:
// yes, no or fails. There are none for an expression that the API server does not accept.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/cel"
)

type question struct {
	Expression string
	Devices    []struct {
		Driver     string
		Attributes map[resourceapi.QualifiedName]resourceapi.DeviceAttribute
		Capacity   map[resourceapi.QualifiedName]resourceapi.DeviceCapacity
	}
}

type answer struct {
	Problem string   `json:"problem,omitempty"`
	Results []string `json:"results"`
}

func evaluate(q question) answer {
	compiled := cel.GetCompiler(cel.Features{}).CompileCELExpression(q.Expression, cel.Options{})
	if compiled.Error != nil {
		return answer{Problem: compiled.Error.Detail}
	}
	if compiled.MaxCost > resourceapi.CELSelectorExpressionMaxCost {
		return answer{Problem: fmt.Sprintf("too complex: estimated cost %d", compiled.MaxCost)}
	}
	var a answer
	for _, d := range q.Devices {
		device := cel.Device{Driver: d.Driver, Attributes: d.Attributes, Capacity: d.Capacity}
		matches, _, err := compiled.DeviceMatches(context.Background(), device)
		result := "no"
		if err != nil {
			result = "fails"
			a.Problem = err.Error()
		} else if matches {
			result = "yes"
		}
		a.Results = append(a.Results, result)
	}
	return a
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	out := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		var q question
		if err := json.Unmarshal(lines.Bytes(), &q); err != nil {
			panic(err)
		}
		if err := out.Encode(evaluate(q)); err != nil {
			panic(err)
		}
	}
}
