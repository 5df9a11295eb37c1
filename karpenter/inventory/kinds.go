package inventory

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// The kinds that the rules ask about.
var (
	podKind                   = schema.GroupKind{Kind: "Pod"}
	nodeKind                  = schema.GroupKind{Kind: "Node"}
	namespaceKind             = schema.GroupKind{Kind: "Namespace"}
	claimKind                 = schema.GroupKind{Kind: "PersistentVolumeClaim"}
	volumeKind                = schema.GroupKind{Kind: "PersistentVolume"}
	replicationControllerKind = schema.GroupKind{Kind: "ReplicationController"}
	replicaSetKind            = schema.GroupKind{Group: "apps", Kind: "ReplicaSet"}
	statefulSetKind           = schema.GroupKind{Group: "apps", Kind: "StatefulSet"}
	daemonSetKind             = schema.GroupKind{Group: "apps", Kind: "DaemonSet"}
	jobKind                   = schema.GroupKind{Group: "batch", Kind: "Job"}
	budgetKind                = schema.GroupKind{Group: "policy", Kind: "PodDisruptionBudget"}
	nodeClaimKind             = schema.GroupKind{Group: "karpenter.sh", Kind: "NodeClaim"}
	nodePoolKind              = schema.GroupKind{Group: "karpenter.sh", Kind: "NodePool"}
	workflowKind              = schema.GroupKind{Group: "argoproj.io", Kind: "Workflow"}
)

// A knownKind is one that is kept with its content; of all others only the identity is kept.
type knownKind struct {
	// version is the only one that is read; empty where any is.
	version    string
	namespaced bool
	decode     func([]byte) (metav1.Object, error)
	// trim drops what nobody reads.
	trim func(metav1.Object)
}

var knownKinds = map[schema.GroupKind]knownKind{
	podKind:                   typed("v1", true, keepPod),
	nodeKind:                  typed("v1", false, keepNode),
	namespaceKind:             typed("v1", false, keepMeta[*corev1.Namespace]),
	claimKind:                 typed("v1", true, keepMeta[*corev1.PersistentVolumeClaim]),
	volumeKind:                typed("v1", false, keepMeta[*corev1.PersistentVolume]),
	replicationControllerKind: typed("v1", true, keepReplicationController),
	replicaSetKind:            typed("v1", true, keepReplicaSet),
	statefulSetKind:           typed("v1", true, keepStatefulSet),
	daemonSetKind:             typed("v1", true, keepDaemonSet),
	jobKind:                   typed("v1", true, keepJob),
	budgetKind:                typed("v1", true, keepMeta[*policyv1.PodDisruptionBudget]),
	nodeClaimKind:             typed("v1", false, keepMeta[*karpv1.NodeClaim]),
	nodePoolKind:              typed("v1", false, keepMeta[*karpv1.NodePool]),
	workflowKind:              {"", true, decodeWorkflow, nil},
}

// builtinGroups are those whose kinds are all Kubernetes' or Karpenter's own: a known kind under another of them is a
// slip, whereas under a foreign group (longhorn.io/v1beta2 Node) it is another kind.
var builtinGroups = map[string]bool{
	"": true, "apps": true, "batch": true, "extensions": true, "policy": true, "karpenter.sh": true,
}

// passingKinds come in great numbers, own no pods and answer no question: they are not even remembered.
var passingKinds = map[schema.GroupKind]bool{
	{Kind: "Event"}:                                    true,
	{Group: "events.k8s.io", Kind: "Event"}:            true,
	{Group: "coordination.k8s.io", Kind: "Lease"}:      true,
	{Kind: "Endpoints"}:                                true,
	{Group: "discovery.k8s.io", Kind: "EndpointSlice"}: true,
}

// typed is a kind with a Go type of its own, of which keep drops a part.
func typed[T any, P interface {
	*T
	metav1.Object
}](version string, namespaced bool, keep func(P)) knownKind {
	decode := func(raw []byte) (metav1.Object, error) {
		object := P(new(T))
		if err := json.Unmarshal(raw, object); err != nil {
			return nil, err
		}
		keep(object)
		return object, nil
	}
	trim := func(object metav1.Object) {
		if object, ok := object.(P); ok {
			keep(object)
		}
	}
	return knownKind{version, namespaced, decode, trim}
}

// decodeWorkflow keeps a Workflow's spec: rule 11 reads it.
func decodeWorkflow(raw []byte) (metav1.Object, error) {
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON(raw); err != nil {
		return nil, err
	}
	keepWorkflow(object)
	return object, nil
}

// decodeOldClaim reads of a NodeClaim of another version what tells that its node goes, which is where it is in v1. Clusters
// are dumped with all that they hold, and one old object must not cost the answer.
func decodeOldClaim(raw []byte) (metav1.Object, error) {
	var object struct {
		Metadata metav1.ObjectMeta `json:"metadata"`
		Status   struct {
			NodeName   string `json:"nodeName"`
			ProviderID string `json:"providerID"`
		} `json:"status"`
	}
	if err := json.Unmarshal(raw, &object); err != nil {
		return nil, err
	}
	claim := &karpv1.NodeClaim{ObjectMeta: object.Metadata}
	claim.Status.NodeName, claim.Status.ProviderID = object.Status.NodeName, object.Status.ProviderID
	keepMeta(claim)
	return claim, nil
}

// skipOldPool leaves out a NodePool of another version: what it may launch is spelled in another way.
func (b *builder) skipOldPool(meta metav1.TypeMeta) {
	b.read++
	b.notice(fmt.Sprintf("NodePools of %s are left out, so that no pod is answered NeedsNode by them: "+
		"pass what kubectl get nodepools.v1.karpenter.sh -o yaml prints", meta.APIVersion))
}

// decodeIdentity reads of an object only what an owner lookup needs.
func decodeIdentity(raw []byte) (metav1.Object, error) {
	var object struct {
		metav1.TypeMeta
		Metadata struct {
			Name              string                  `json:"name"`
			GenerateName      string                  `json:"generateName"`
			Namespace         string                  `json:"namespace"`
			UID               string                  `json:"uid"`
			DeletionTimestamp *metav1.Time            `json:"deletionTimestamp"`
			OwnerReferences   []metav1.OwnerReference `json:"ownerReferences"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(raw, &object); err != nil {
		return nil, err
	}
	identity := &metav1.PartialObjectMetadata{TypeMeta: object.TypeMeta}
	identity.Name, identity.Namespace = object.Metadata.Name, object.Metadata.Namespace
	identity.GenerateName = object.Metadata.GenerateName
	identity.SetUID(types.UID(object.Metadata.UID))
	identity.DeletionTimestamp = object.Metadata.DeletionTimestamp
	identity.OwnerReferences = object.Metadata.OwnerReferences
	return identity, nil
}

// add reads one object. The bytes are not kept.
func (b *builder) add(raw []byte, meta metav1.TypeMeta, at place) error {
	gv, kind, err := identify(meta, at)
	if err != nil {
		return err
	}
	if passingKinds[kind] {
		b.read++
		return nil
	}
	known, ok := knownKinds[kind]
	decode := decodeIdentity
	if ok {
		decode = known.decode
		switch {
		case known.version == "", gv.Version == known.version:
		case kind == nodeClaimKind:
			decode = decodeOldClaim
		case kind == nodePoolKind:
			b.skipOldPool(meta)
			return nil
		default:
			return wrongVersion(meta, kind, known, at)
		}
	}
	object, err := decode(raw)
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return &syntaxError{at, fmt.Sprintf("the JSON of this %s is broken: %v", kind.Kind, err)}
	}
	if err != nil {
		return &InputError{
			Where: at.String(), Problem: fmt.Sprintf("this %s cannot be read: %v", kind.Kind, err), Err: err,
			Advice: "compare the field with what kubectl get -o yaml prints for such an object",
		}
	}
	b.read++
	if !ok && object.GetName() == "" {
		return nil // a Kustomization and the like: nothing of a cluster's
	}
	if err := b.settleName(object, kind, at); err != nil {
		return err
	}
	return b.put(kind, object, at)
}

// settleName checks the name and puts the object into the namespace that kubectl would.
func (b *builder) settleName(object metav1.Object, kind schema.GroupKind, at place) error {
	if object.GetName() == "" {
		e := &InputError{Where: at.String(), Problem: fmt.Sprintf("this %s has no metadata.name", kind.Kind)}
		e.Advice = "give it a name, or read the object from the cluster: kubectl get -o yaml"
		if object.GetGenerateName() != "" {
			e.Advice = "metadata.generateName is a wish, not a name; " + e.Advice
		}
		return e
	}
	known, ok := knownKinds[kind]
	switch {
	case ok && !known.namespaced:
		object.SetNamespace("")
	case ok && object.GetNamespace() == "":
		object.SetNamespace(metav1.NamespaceDefault)
	}
	return nil
}

// identify checks that something is a Kubernetes object at all.
func identify(meta metav1.TypeMeta, at place) (schema.GroupVersion, schema.GroupKind, error) {
	problem := ""
	gv, err := schema.ParseGroupVersion(meta.APIVersion)
	kind := gv.WithKind(meta.Kind).GroupKind()
	switch {
	case meta.Kind == "" && meta.APIVersion == "":
		problem = "this is no Kubernetes object: it has neither apiVersion nor kind"
	case meta.Kind == "":
		problem = fmt.Sprintf("this object has apiVersion %q but no kind", meta.APIVersion)
	case meta.APIVersion == "":
		problem = fmt.Sprintf("this %s has no apiVersion", meta.Kind)
	case err != nil:
		problem = fmt.Sprintf("%s has the malformed apiVersion %q", meta.Kind, meta.APIVersion)
	case builtinGroups[gv.Group]:
		if _, ok := knownKinds[kind]; ok {
			break
		}
		for own, known := range knownKinds {
			if own.Kind == meta.Kind && known.version != "" {
				return gv, kind, wrongVersion(meta, own, known, at)
			}
		}
	}
	if problem != "" {
		return gv, kind, &InputError{
			Where: at.String(), Problem: problem, Err: err,
			Advice: "pass what kubectl get -o yaml (or -o json) prints",
		}
	}
	return gv, kind, nil
}

func wrongVersion(meta metav1.TypeMeta, kind schema.GroupKind, known knownKind, at place) error {
	want := schema.GroupVersion{Group: kind.Group, Version: known.version}.String()
	resource := strings.ToLower(kind.Kind) + "s"
	if kind.Group != "" {
		resource += "." + known.version + "." + kind.Group
	}
	return &InputError{
		Where:   at.String(),
		Problem: fmt.Sprintf("%s has apiVersion %q; rollcall reads it as %s", kind.Kind, meta.APIVersion, want),
		Advice:  fmt.Sprintf("ask the cluster for that version: kubectl get %s -A -o yaml", resource),
	}
}
