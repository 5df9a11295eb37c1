package proof

import (
	"fmt"
	"path/filepath"
	"sync/atomic"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// An identity is a service account, as a pod of its has it.
type identity struct {
	namespace, account string
	token              string
}

var identities atomic.Int32

// bound is the account in a pod on the node: the API server writes the node's name into the token. The pod belongs to the
// node, so that nothing is lost with it.
func (l *lab) bound(namespace, account, node string) identity {
	l.Helper()
	owner, err := l.client.CoreV1().Nodes().Get(l.Context(), node, metav1.GetOptions{})
	l.must(err)
	pod, err := l.client.CoreV1().Pods(namespace).Create(l.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:            fmt.Sprintf("%s-%d", account, identities.Add(1)),
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node, UID: owner.UID}},
		},
		Spec: corev1.PodSpec{
			ServiceAccountName: account, NodeName: node,
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			Containers:  []corev1.Container{{Name: "c", Image: "i:1"}},
		},
	}, metav1.CreateOptions{})
	l.must(err)
	l.dropPodLater(pod.Namespace, pod.Name)
	return l.issue(namespace, account, &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID})
}

// unbound is the account with a token that anybody with the right to ask could get.
func (l *lab) unbound(namespace, account string) identity {
	l.Helper()
	return l.issue(namespace, account, nil)
}

func (l *lab) issue(namespace, account string, to *authenticationv1.BoundObjectReference) identity {
	l.Helper()
	answer, err := l.client.CoreV1().ServiceAccounts(namespace).CreateToken(l.Context(), account,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{BoundObjectRef: to}}, metav1.CreateOptions{})
	l.must(err)
	return identity{namespace, account, answer.Status.Token}
}

// through returns a kubeconfig for the identity, and the door that it leads through.
func (l *lab) through(who identity) (*door, string) {
	l.Helper()
	d := newDoor(l.T, l.cluster.Config())
	config := clientcmdapi.NewConfig()
	config.Clusters["door"] = &clientcmdapi.Cluster{Server: d.server.URL, CertificateAuthorityData: d.ca()}
	config.AuthInfos[who.account] = &clientcmdapi.AuthInfo{Token: who.token}
	config.Contexts["door"] = &clientcmdapi.Context{Cluster: "door", AuthInfo: who.account}
	config.CurrentContext = "door"
	file := filepath.Join(l.TempDir(), "kubeconfig")
	l.must(clientcmd.WriteToFile(*config, file))
	return d, file
}

// as is a client with the identity, without a door.
func (l *lab) as(who identity) kubernetes.Interface {
	l.Helper()
	config := rest.AnonymousClientConfig(l.cluster.Config())
	config.BearerToken, config.QPS = who.token, -1
	return kubernetes.NewForConfigOrDie(config)
}
