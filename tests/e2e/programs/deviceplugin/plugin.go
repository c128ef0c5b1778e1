package main

import (
	"context"
	"log"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// plugin serves one resource.
type plugin struct {
	api.UnimplementedDevicePluginServer
	mutex    sync.Mutex
	offered  resource
	watchers []chan struct{} // of each ListAndWatch: something has changed
}

// register serves on a socket of its own and tells kubelet of it.
func (p *plugin) register(dir string) error {
	name := "test-" + strings.NewReplacer("/", "-", ".", "-").Replace(p.offered.Name) + ".sock"
	path := filepath.Join(dir, name)
	_ = os.Remove(path)
	listener, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	api.RegisterDevicePluginServer(server, p)
	go func() { log.Fatal(server.Serve(listener)) }()
	target := "unix://" + filepath.Join(dir, "kubelet.sock")
	connection, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_, err = api.NewRegistrationClient(connection).Register(ctx, &api.RegisterRequest{
		Version: api.Version, Endpoint: name, ResourceName: p.offered.Name, Options: &api.DevicePluginOptions{},
	}, grpc.WaitForReady(true))
	log.Printf("%s: registered, error %v", p.offered.Name, err)
	return err
}

func (p *plugin) update(offered resource) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.offered = offered
	for _, watcher := range p.watchers {
		select {
		case watcher <- struct{}{}:
		default: // it has not looked yet, and will see this change too
		}
	}
}

func (p *plugin) list() *api.ListAndWatchResponse {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	answer := &api.ListAndWatchResponse{}
	for _, offered := range p.offered.Devices {
		entry := &api.Device{ID: offered.ID, Health: api.Healthy}
		if offered.Unhealthy {
			entry.Health = api.Unhealthy
		}
		answer.Devices = append(answer.Devices, entry)
	}
	return answer
}

func (p *plugin) ListAndWatch(_ *api.Empty, stream grpc.ServerStreamingServer[api.ListAndWatchResponse]) error {
	watcher := make(chan struct{}, 1)
	p.mutex.Lock()
	p.watchers = append(p.watchers, watcher)
	p.mutex.Unlock()
	for {
		if err := stream.Send(p.list()); err != nil {
			return err
		}
		select {
		case <-watcher:
		case <-stream.Context().Done():
			return nil
		}
	}
}

func (p *plugin) Allocate(_ context.Context, request *api.AllocateRequest) (*api.AllocateResponse, error) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	answer := &api.AllocateResponse{}
	for _, container := range request.ContainerRequests {
		answer.ContainerResponses = append(answer.ContainerResponses, p.allocate(container.DevicesIds))
		log.Printf("%s: allocated %v", p.offered.Name, container.DevicesIds)
	}
	return answer, nil
}

func (p *plugin) allocate(ids []string) *api.ContainerAllocateResponse {
	answer := &api.ContainerAllocateResponse{Envs: map[string]string{}}
	if p.offered.ListEnv != "" {
		answer.Envs[p.offered.ListEnv] = strings.Join(ids, ",")
	}
	for _, id := range ids {
		for _, offered := range p.offered.Devices {
			if offered.ID == id {
				p.describe(offered, answer)
			}
		}
	}
	return answer
}

func (p *plugin) describe(allocated device, answer *api.ContainerAllocateResponse) {
	for _, n := range allocated.Nodes {
		answer.Devices = append(answer.Devices, &api.DeviceSpec{
			HostPath: n.Host, ContainerPath: n.Container, Permissions: n.Permissions,
		})
	}
	for _, m := range allocated.Mounts {
		answer.Mounts = append(answer.Mounts, &api.Mount{HostPath: m.Host, ContainerPath: m.Container, ReadOnly: true})
	}
}

func (p *plugin) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	return &api.DevicePluginOptions{}, nil
}
