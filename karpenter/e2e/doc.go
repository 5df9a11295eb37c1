// Package e2e holds tests of rollcall's disruption reconciler beside the real Karpenter on a real control plane, and
// nothing else. Karpenter's machines are played by internal/livekarpenter's StandIn or are real kubelets.
package e2e
