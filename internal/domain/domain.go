// Package domain owns the names that rollcall shows to others in a cluster. Everything under the project's own domain is
// spelled here and nowhere else; names of Kubernetes' and Karpenter's things are theirs and come from their packages.
package domain

// Name is the domain of everything that is rollcall's.
const Name = "rollcall.dev"

// AtRisk is the annotation on a pod that will be lost with its node: the marker of DESIGN.md section 5.
const AtRisk = Name + "/at-risk"

// StaticPods is the annotation on a Node under which rollcall-agent publishes the static pods that are expected there:
// DESIGN.md section 6.
const StaticPods = Name + "/static-pods"

// Released is the annotation on a Node from which rollcall took the readiness taint; its value is the Node's UID, so that
// it is never done twice.
const Released = Name + "/released"

// FieldManager is the name under which rollcall's fields are listed in managedFields.
const FieldManager = "rollcall"
