// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package testbed

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"google.golang.org/grpc"
	deviceplugin "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// devicePlugin is a kubelet's device plugin that names CDI devices, as NVIDIA's
// does with its strategy cdi-cri.
type devicePlugin struct {
	deviceplugin.UnimplementedDevicePluginServer
	registration.UnimplementedRegistrationServer

	resource, socket string
	devices          []*deviceplugin.CDIDevice
	// shares is how many containers get the devices, at the same time.
	shares int
}

// ServeDevices has containers get CDI devices that ask for one of a resource
// (hetgpu.io/gpu), up to so many at once. It returns when the kubelet has them to
// give.
func (k *Kubelet) ServeDevices(ctx context.Context, resource string, shares int, devices ...string) error {
	p := &devicePlugin{resource: resource, shares: shares}
	for _, device := range devices {
		p.devices = append(p.devices, &deviceplugin.CDIDevice{Name: device})
	}
	p.socket = filepath.Join(k.Dir, "plugins_registry", strings.ReplaceAll(resource, "/", "-")+".sock")
	if err := os.MkdirAll(filepath.Dir(p.socket), 0o750); err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", p.socket)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	deviceplugin.RegisterDevicePluginServer(server, p)
	registration.RegisterRegistrationServer(server, p)
	k.plugins = append(k.plugins, server)
	go func() { _ = server.Serve(listener) }() // until it is stopped
	ctx, cancel := context.WithTimeout(ctx, kubeletTimeout)
	defer cancel()
	return k.Eventually(ctx, "the kubelet has "+resource, func() error {
		log, err := os.ReadFile(k.LogPath())
		if err == nil && !strings.Contains(string(log), fmt.Sprintf("\"Processed device updates for resource\" resourceName=%q", resource)) {
			err = errors.New("its log says nothing of it")
		}
		return err
	})
}

// GetInfo tells the kubelet what is behind the socket that it found.
func (p *devicePlugin) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{
		Type: registration.DevicePlugin, Name: p.resource, Endpoint: p.socket, SupportedVersions: []string{deviceplugin.Version},
	}, nil
}

// NotifyRegistrationStatus is told what the kubelet makes of it; what a test waits
// for comes later.
func (p *devicePlugin) NotifyRegistrationStatus(context.Context, *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	return &registration.RegistrationStatusResponse{}, nil
}

// GetDevicePluginOptions says that it wants nothing special.
func (p *devicePlugin) GetDevicePluginOptions(context.Context, *deviceplugin.Empty) (*deviceplugin.DevicePluginOptions, error) {
	return &deviceplugin.DevicePluginOptions{}, nil
}

// ListAndWatch names the devices, which stay.
func (p *devicePlugin) ListAndWatch(_ *deviceplugin.Empty, stream grpc.ServerStreamingServer[deviceplugin.ListAndWatchResponse]) error {
	var devices []*deviceplugin.Device
	for i := range p.shares {
		devices = append(devices, &deviceplugin.Device{ID: strconv.Itoa(i), Health: deviceplugin.Healthy})
	}
	if err := stream.Send(&deviceplugin.ListAndWatchResponse{Devices: devices}); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

// Allocate gives each container all of the CDI devices.
func (p *devicePlugin) Allocate(_ context.Context, r *deviceplugin.AllocateRequest) (*deviceplugin.AllocateResponse, error) {
	answer := &deviceplugin.AllocateResponse{}
	for range r.GetContainerRequests() {
		answer.ContainerResponses = append(answer.ContainerResponses, &deviceplugin.ContainerAllocateResponse{
			CdiDevices: p.devices,
		})
	}
	return answer, nil
}
