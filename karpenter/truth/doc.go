// Package truth holds rollcall's verdicts against what a real control plane does (DESIGN.md section 3). It is a test and
// nothing else: it puts a pod for every rule on one node, asks kubectl-rollcall about that node, ends the node for real,
// and compares. It owns the scenarios and the score; it decides no verdict, and none is written into an outcome by hand.
//
// There are two rounds, at the same time on one cluster, each with a node that goes and one that stays:
//
//	drained  the node is drained with force (k8s.io/kubectl/pkg/drain); what the drain leaves alone then sees the machine
//	         die: the kubelet gets SIGKILL and the Node is deleted
//	died     the kubelet gets SIGKILL and the Node is deleted at once
//
// A verdict follows the machine's death. Where an eviction ends differently a scenario knows both right outcomes, and the
// message has to say so. What the scenarios are made of was found by hand first (facts/fate-truth.md).
package truth
