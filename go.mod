module github.com/hetgpu/containerd-shim-hetgpu

go 1.26.0
