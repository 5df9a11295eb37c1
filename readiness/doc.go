// Package readiness says whether every static pod of a node is on the books: which static pods are expected there, which
// of them have a mirror pod that the scheduler counts, and what the Node's condition is to be (DESIGN.md section 6).
//
// It owns the words (Expected, Result), their form as an annotation on the Node, and the rules. It reads no clock, no file
// and no API: that is for the packages below it and for those who call it. It must not import karpenter.
package readiness
