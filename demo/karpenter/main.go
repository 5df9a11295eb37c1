// Command karpenter is the real Karpenter with its kwok provider, which makes Node objects instead of machines.
//
//	karpenter crds   prints the CustomResourceDefinitions that it needs, as one JSON List
//	karpenter run    runs it; the environment is Karpenter's own
//
// It is a module of its own because Karpenter does not compile against the Kubernetes version that rollcall uses.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kwokapis "sigs.k8s.io/karpenter/kwok/apis"
	kwok "sigs.k8s.io/karpenter/kwok/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/apis"
	"sigs.k8s.io/karpenter/pkg/cloudprovider/overlay"
	"sigs.k8s.io/karpenter/pkg/controllers"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/operator"
)

func main() {
	if len(os.Args) < 2 {
		fail(fmt.Errorf("no command given: use crds or run"))
	}
	command := os.Args[1]
	os.Args = append(os.Args[:1], os.Args[2:]...) // Karpenter reads the rest
	switch command {
	case "crds":
		fail(printCRDs())
	case "run":
		fail(run())
	default:
		fail(fmt.Errorf("unknown command %q: use crds or run", command))
	}
}

func fail(err error) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "karpenter: %v\n", err)
		os.Exit(1)
	}
}

// printCRDs prints the definitions that are compiled into Karpenter's own API packages.
func printCRDs() error {
	list := apiextensionsv1.CustomResourceDefinitionList{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "List"},
	}
	for _, crd := range append(apis.CRDs, kwokapis.CRDs...) {
		list.Items = append(list.Items, *crd)
	}
	return json.NewEncoder(os.Stdout).Encode(list)
}

// run is kwok/main.go of Karpenter, which also stops when its parent dies: standard input is the lifeline.
func run() error {
	ctx, op := operator.NewOperator()
	go func() {
		_, _ = os.Stdin.Read(make([]byte, 1)) // returns when the parent closes it or dies
		os.Exit(0)
	}()
	instanceTypes, err := kwok.ConstructInstanceTypes(ctx)
	if err != nil {
		return fmt.Errorf("reading the instance types: %w", err)
	}
	undecorated := kwok.NewCloudProvider(ctx, op.GetClient(), instanceTypes)
	provider := overlay.Decorate(undecorated, op.GetClient(), op.InstanceTypeStore)
	cluster := state.NewCluster(op.Clock, op.GetClient(), provider)
	op.WithControllers(ctx, controllers.NewControllers(
		ctx, op.Manager, op.Clock, op.GetClient(), op.EventRecorder, provider, undecorated, cluster, op.InstanceTypeStore,
	)...).Start(ctx)
	return nil
}
