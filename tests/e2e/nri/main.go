// An NRI plugin that adds a device, a mount and variables to the containers of pods with an annotation:
//
//	nri.test/inject: NAME=value NAME=value
package main

import (
	"context"
	"log"
	"strings"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
)

const annotation = "nri.test/inject"

type plugin struct{}

// CreateContainer is called by the runtime before it creates a container.
func (plugin) CreateContainer(
	_ context.Context, pod *api.PodSandbox, _ *api.Container,
) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	variables, ok := pod.Annotations[annotation]
	if !ok {
		return nil, nil, nil
	}
	adjustment := &api.ContainerAdjustment{}
	for _, variable := range strings.Fields(variables) {
		name, value, _ := strings.Cut(variable, "=")
		adjustment.AddEnv(name, value)
	}
	adjustment.AddDevice(&api.LinuxDevice{Path: "/dev/injected", Type: "c", Major: 1, Minor: 5})
	adjustment.AddMount(&api.Mount{
		Source: "/etc/containerd.toml", Destination: "/etc/injected", Type: "bind", Options: []string{"bind", "ro"},
	})
	return adjustment, nil, nil
}

func main() {
	runtime, err := stub.New(plugin{})
	if err == nil {
		err = runtime.Run(context.Background())
	}
	log.Fatal(err)
}
