// Package gate holds new nodes until their static pods are on the books: the readiness reconciler of the controller. It
// keeps the Node's condition what readiness.Evaluate says, takes the readiness taint away where it was asked to, and says
// which nodes are held for long, for what (DESIGN.md section 6).
//
// It owns every write to a Node but the agent's annotation. It never puts a taint on a node, so that a node that was
// released is never held again. It must not import karpenter.
package gate
