package deploy_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/rollcall-dev/rollcall/internal/livecluster"
	"github.com/rollcall-dev/rollcall/internal/liverollcall"
)

const readinessTaint = "readiness.k8s.io/StaticPodsMirrored"

// The plain manifests, applied to a real control plane with real kubelets: their pods are scheduled, and beside each pod, whose
// container is a fake one, its program runs with the pod's own arguments and environment and a token of the pod's own. Then
// the main job, the readiness gate, and the removal that docs/operations.md describes.
func TestManifestsWork(t *testing.T) {
	l := newLab(t)
	binaries, err := liverollcall.Build(t.Context(), t.TempDir(), liverollcall.Controller, liverollcall.Agent, liverollcall.Plugin)
	l.must(err)
	text, err := os.ReadFile("manifests/install.yaml")
	l.must(err)
	installed := objects(t, string(text))
	site := &site{lab: l, binaries: binaries, machines: map[string]*livecluster.Machine{}}

	site.addNode("work-1")
	l.apply(installed...)
	site.run("work-1", "rollcall-controller", 2)
	site.run("work-1", "rollcall-agent", 1)
	site.mainJob("work-1")
	site.gate("work-2")
	site.removed(installed)
}

// A site is a cluster on which rollcall is installed.
type site struct {
	*lab
	binaries *liverollcall.Binaries
	machines map[string]*livecluster.Machine
	programs []*liverollcall.Program
}

func (s *site) addNode(name string, taints ...string) {
	s.Helper()
	manifests := filepath.Join(s.TempDir(), "manifests")
	s.must(os.MkdirAll(manifests, 0o755))
	s.must(os.WriteFile(filepath.Join(manifests, "proxy.yaml"), []byte(`apiVersion: v1
kind: Pod
metadata: {name: proxy, namespace: kube-system}
spec: {hostNetwork: true, containers: [{name: c, image: "i:1", resources: {requests: {cpu: 100m}}}]}
`), 0o600))
	machine, err := s.cluster.AddNode(s.Context(), livecluster.Node{Name: name, StaticPods: manifests, Taints: taints, NoWait: len(taints) > 0})
	s.must(err)
	s.machines[name] = machine
}

// run starts the program of each pod that the installation has on the node.
func (s *site) run(node, program string, pods int) {
	s.Helper()
	var found []corev1.Pod
	s.eventually(fmt.Sprintf("%d pods of %s on %s", pods, program, node), func(ctx context.Context) (bool, error) {
		list, err := s.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
		if err != nil {
			return false, err
		}
		found = slices.DeleteFunc(list.Items, func(pod corev1.Pod) bool { return image(pod.Spec.Containers[0]) != program })
		return len(found) == pods, nil
	})
	for _, pod := range found {
		s.start(&pod, program)
	}
}

// start runs the pod's program as the pod would, but for the addresses, which are on this machine, and the host's paths,
// which are the machine's of the node.
func (s *site) start(pod *corev1.Pod, program string) {
	s.Helper()
	container := pod.Spec.Containers[0]
	for _, env := range container.Env {
		s.Setenv(env.Name, s.field(pod, env))
	}
	own := []string{"--kubeconfig", s.kubeconfig(pod)}
	if program == liverollcall.Controller {
		own = append(own, "--health-address", s.freeAddress(), "--stream-address=")
	}
	var args []string
	for _, arg := range container.Args {
		args = append(args, s.onHost(pod, arg))
	}
	if program == liverollcall.Agent {
		node, err := s.client.CoreV1().Nodes().Get(s.Context(), pod.Spec.NodeName, metav1.GetOptions{})
		s.must(err)
		boot := filepath.Join(s.TempDir(), "boot_id")
		s.must(os.WriteFile(boot, []byte(node.Status.NodeInfo.BootID), 0o600))
		own = append(own, "--boot-id-file", boot)
	}
	p, err := s.binaries.Start(program, pod.Name, append(args, own...)...)
	s.must(err)
	s.Cleanup(p.Stop)
	s.programs = append(s.programs, p)
}

// field is the value of a variable that comes from the pod's fields.
func (s *site) field(pod *corev1.Pod, env corev1.EnvVar) string {
	s.Helper()
	switch path := env.ValueFrom.FieldRef.FieldPath; path {
	case "spec.nodeName":
		return pod.Spec.NodeName
	case "metadata.name":
		return pod.Name
	case "status.podIP":
		return pod.Status.PodIP
	case "status.hostIP":
		return pod.Status.HostIP
	default:
		s.Fatalf("%s comes from %s, which this test does not know", env.Name, path)
		return ""
	}
}

// onHost makes of an argument that names a path of the host, which has to be mounted and read-only, the machine's own.
func (s *site) onHost(pod *corev1.Pod, arg string) string {
	s.Helper()
	machine := s.machines[pod.Spec.NodeName]
	for path, own := range map[string]string{
		"/var/lib/kubelet/pods-api": filepath.Join(machine.Root, "pods-api"),
		"/etc/kubernetes/manifests": machine.StaticPods,
	} {
		if _, value, _ := strings.Cut(arg, "="); strings.HasPrefix(value, path) {
			if !slices.ContainsFunc(pod.Spec.Containers[0].VolumeMounts, func(m corev1.VolumeMount) bool {
				return m.ReadOnly && strings.HasPrefix(value, m.MountPath)
			}) {
				s.Errorf("%s of pod %s is not mounted read-only", value, pod.Name)
			}
			return strings.Replace(arg, path, own, 1)
		}
	}
	return arg
}

// kubeconfig has a token as the kubelet would give the pod.
func (s *site) kubeconfig(pod *corev1.Pod) string {
	s.Helper()
	bound := &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}
	answer, err := s.client.CoreV1().ServiceAccounts(namespace).CreateToken(s.Context(), pod.Spec.ServiceAccountName,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{BoundObjectRef: bound}}, metav1.CreateOptions{})
	s.must(err)
	admin := s.cluster.Config()
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: admin.Host, CertificateAuthorityData: admin.CAData, CertificateAuthority: admin.CAFile}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: answer.Status.Token}
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	config.CurrentContext = "x"
	file := filepath.Join(s.TempDir(), "kubeconfig")
	s.must(clientcmd.WriteToFile(*config, file))
	return file
}

// mainJob interrupts the node: the bare pod is marked and recorded, the Deployment's is not; then the node is healthy again, and
// interrupted once more, so that something is left to remove.
func (s *site) mainJob(node string) {
	s.Helper()
	s.makeNamespace("shop", nil)
	one := int32(1)
	labels := map[string]string{"app": "web"}
	_, err := s.client.AppsV1().Deployments("shop").Create(s.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{Replicas: &one, Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i:1"}}},
		}},
	}, metav1.CreateOptions{})
	s.must(err)
	s.makePod("shop", "notebook", node)
	s.eventually("the Deployment's pod on the node", func(ctx context.Context) (bool, error) {
		list, err := s.client.CoreV1().Pods("shop").List(ctx, metav1.ListOptions{LabelSelector: "app=web", FieldSelector: "spec.nodeName=" + node})
		return err == nil && len(list.Items) == 1, err
	})
	s.taint(node, spot)
	s.waitMark("shop", "notebook", true)
	s.taint(node)
	s.waitMark("shop", "notebook", false)
	s.taint(node, spot)
	s.waitMark("shop", "notebook", true)
	pods, err := s.client.CoreV1().Pods("shop").List(s.Context(), metav1.ListOptions{})
	s.must(err)
	for _, pod := range pods.Items {
		if pod.Annotations["rollcall.dev/at-risk"] != "" && pod.Name != "notebook" {
			s.Errorf("%s/%s is marked", pod.Namespace, pod.Name)
		}
	}
	s.eventually("a record of the loss", func(ctx context.Context) (bool, error) {
		records, err := s.dynamic.Resource(podLosses).Namespace("shop").List(ctx, metav1.ListOptions{})
		return err == nil && len(records.Items) == 1, err
	})
}

// gate adds a node that registers with the readiness taint: the DaemonSet puts an agent there, and the controller says when
// its static pod is mirrored.
func (s *site) gate(node string) {
	s.Helper()
	s.addNode(node, readinessTaint+"=pending:NoSchedule")
	s.run(node, liverollcall.Agent, 1)
	s.eventually("the condition of "+node, func(ctx context.Context) (bool, error) {
		object, err := s.client.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		for _, c := range object.Status.Conditions {
			if c.Type == "readiness.example.com/StaticPodsMirrored" {
				if c.Status == corev1.ConditionTrue && c.Reason == "AllMirrored" {
					return true, nil
				}
				return false, fmt.Errorf("it is %s %s: %s", c.Status, c.Reason, c.Message)
			}
		}
		return false, errors.New("there is none")
	})
	if _, err := s.client.CoreV1().Pods("kube-system").Get(s.Context(), "proxy-"+node, metav1.GetOptions{}); err != nil {
		s.Errorf("the condition is True without the mirror: %v", err)
	}
}

// removed takes the installation away and cleans up, and counts what is left.
func (s *site) removed(installed []*unstructured.Unstructured) {
	s.Helper()
	if out, err := s.binaries.Ask(s.Context(), s.cluster, "cleanup", "--yes"); err == nil {
		s.Errorf("cleanup while all runs: %s", out)
	}
	if c := s.left(); c.pods == 0 || c.nodes == 0 || c.conditions == 0 || c.records == 0 || c.leases == 0 {
		s.Errorf("there is too little to remove for this to mean anything: %+v", c)
	}
	for _, p := range s.programs {
		p.Stop()
	}
	stays := func(object *unstructured.Unstructured) bool {
		return object.GetKind() == "CustomResourceDefinition" || object.GetKind() == "Namespace"
	}
	s.remove(slices.DeleteFunc(slices.Clone(installed), stays)...)
	s.eventually("the pods of the installation are gone", func(ctx context.Context) (bool, error) {
		pods, err := s.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		return err == nil && len(pods.Items) == 0, err
	})
	s.leaveMore()
	for _, how := range []string{"--dry-run", "--yes", "--yes"} {
		out, err := s.binaries.Ask(s.Context(), s.cluster, "cleanup", how)
		s.must(err)
		s.Logf("kubectl rollcall cleanup %s\n%s", how, out)
		if how == "--dry-run" && s.left().pods == 0 {
			s.Error("the dry run removed something")
		}
	}
	if c := s.left(); c != (leftovers{}) {
		s.Errorf("left: %+v", c)
	}
	s.remove(slices.DeleteFunc(slices.Clone(installed), func(object *unstructured.Unstructured) bool { return !stays(object) })...)
}

// leaveMore leaves what other installations would: a sidecar's Lease, and a condition of a type of its own.
func (s *site) leaveMore() {
	s.Helper()
	_, err := s.client.CoordinationV1().Leases("kube-system").Create(s.Context(), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "rollcall-controller"}}, metav1.CreateOptions{})
	s.must(err)
	for node := range s.machines {
		_, err := s.client.CoreV1().Nodes().Patch(s.Context(), node, types.StrategicMergePatchType,
			[]byte(`{"status":{"conditions":[{"type":"example.com/StaticPodsMirrored","status":"True"}]}}`), metav1.PatchOptions{FieldManager: "rollcall"}, "status")
		s.must(err)
	}
}

// leftovers counts what bears rollcall's name, whoever wrote it.
type leftovers struct{ pods, nodes, conditions, records, leases, managers int }

func (s *site) left() (c leftovers) {
	s.Helper()
	name := func(object metav1.Object, n *int) {
		for key := range object.GetAnnotations() {
			if strings.Contains(key, "rollcall.dev") {
				*n++
			}
		}
		for _, m := range object.GetManagedFields() {
			if strings.HasPrefix(m.Manager, "rollcall") {
				c.managers++
			}
		}
	}
	pods, err := s.client.CoreV1().Pods("").List(s.Context(), metav1.ListOptions{})
	s.must(err)
	for i := range pods.Items {
		name(&pods.Items[i], &c.pods)
	}
	nodes, err := s.client.CoreV1().Nodes().List(s.Context(), metav1.ListOptions{})
	s.must(err)
	for i := range nodes.Items {
		name(&nodes.Items[i], &c.nodes)
		for _, condition := range nodes.Items[i].Status.Conditions {
			if strings.Contains(string(condition.Type), "StaticPodsMirrored") {
				c.conditions++
			}
		}
	}
	records, err := s.dynamic.Resource(podLosses).List(s.Context(), metav1.ListOptions{})
	s.must(err)
	c.records = len(records.Items)
	leases, err := s.client.CoordinationV1().Leases("").List(s.Context(), metav1.ListOptions{FieldSelector: "metadata.name=rollcall-controller"})
	s.must(err)
	c.leases = len(leases.Items)
	return c
}
