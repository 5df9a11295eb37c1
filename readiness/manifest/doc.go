// Package manifest reads a directory of static pods as the kubelet of Kubernetes 1.37 does: which files count, what of a
// file counts, what is refused and why, and which of two pods of one name stays. The rules are those of
// pkg/kubelet/config, pkg/api/pod and pkg/apis/core/{v1,validation} of Kubernetes, and facts/static-pods.md section 1; the
// module demo/oracle holds them against the kubelet's own code.
//
// One direction is strict: what the kubelet accepts is never refused here. Some of what only the API's full validation
// refuses is taken for a pod; docs/readiness.md lists it.
//
// It reads files and nothing else; it never fails on one file and never waits for one.
package manifest
