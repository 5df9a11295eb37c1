package main

import (
	_ "go.etcd.io/etcd/server/v3/embed"
	_ "k8s.io/cri-client/pkg/fake"
	_ "k8s.io/kubernetes/cmd/kube-apiserver/app"
	_ "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	_ "k8s.io/kubernetes/cmd/kube-scheduler/app"
	_ "k8s.io/kubernetes/pkg/kubelet/cadvisor/testing"
	_ "k8s.io/kubernetes/pkg/kubemark"
)

func main() {}
