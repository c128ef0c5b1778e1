// An NRI plugin that changes the containers of pods with one of these annotations. The first adds a device, a mount and
// variables, the second mounts a folder of the node at /sys/class:
//
//	nri.test/inject: NAME=value NAME=value
//	nri.test/sys-class: FOLDER
package main

import (
	"context"
	"log"
	"strings"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
)

type plugin struct{}

// CreateContainer is called by the runtime before it creates a container.
func (plugin) CreateContainer(
	_ context.Context, pod *api.PodSandbox, _ *api.Container,
) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	adjustment := &api.ContainerAdjustment{}
	if variables, ok := pod.Annotations["nri.test/inject"]; ok {
		for _, variable := range strings.Fields(variables) {
			name, value, _ := strings.Cut(variable, "=")
			adjustment.AddEnv(name, value)
		}
		adjustment.AddDevice(&api.LinuxDevice{Path: "/dev/injected", Type: "c", Major: 1, Minor: 5})
		mount(adjustment, "/etc/containerd.toml", "/etc/injected")
	}
	if folder, ok := pod.Annotations["nri.test/sys-class"]; ok {
		mount(adjustment, folder, "/sys/class")
	}
	return adjustment, nil, nil
}

func mount(adjustment *api.ContainerAdjustment, source, destination string) {
	adjustment.AddMount(&api.Mount{
		Source: source, Destination: destination, Type: "bind", Options: []string{"bind", "ro"},
	})
}

func main() {
	runtime, err := stub.New(plugin{})
	if err == nil {
		err = runtime.Run(context.Background())
	}
	log.Fatal(err)
}
