// Answers each JSON value {"text": ..., "namespace": ...} on standard input with a line that says what Multus's own
// GetPodNetwork makes of such an annotation. tests/data/multus/README.md says how it is built.
package main

import (
	"encoding/json"
	"os"

	"gopkg.in/k8snetworkplumbingwg/multus-cni.v4/pkg/k8sclient"
	"gopkg.in/k8snetworkplumbingwg/multus-cni.v4/pkg/logging"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

type question struct{ Text, Namespace string }

func ask(q question) (answer map[string]any) {
	defer func() {
		if recover() != nil {
			answer = map[string]any{"rejected": "panic"}
		}
	}()
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace:   q.Namespace,
		Annotations: map[string]string{"k8s.v1.cni.cncf.io/networks": q.Text},
	}}
	networks, err := k8sclient.GetPodNetwork(pod)
	if _, none := err.(*k8sclient.NoK8sNetworkError); err != nil && !none {
		return map[string]any{"rejected": err.Error()}
	}
	read := []any{}
	for _, n := range networks {
		gateways := -1
		if n.GatewayRequest != nil {
			gateways = len(*n.GatewayRequest)
		}
		read = append(read, []any{n.Namespace, n.Name, n.InterfaceRequest, gateways})
	}
	return map[string]any{"networks": read}
}

func main() {
	logging.SetLogStderr(false)
	questions, answers := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for questions.More() {
		var q question
		if err := questions.Decode(&q); err != nil {
			panic(err)
		}
		if err := answers.Encode(ask(q)); err != nil {
			panic(err)
		}
	}
}
