// Package kubelet learns which static pods the kubelet of this machine has accepted, by three ways behind one interface:
// its PodsAPI socket, its /pods, and its manifest directory. Choice says which of them decides. It knows nothing of the
// API server and writes nothing.
package kubelet
