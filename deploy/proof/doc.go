// Package proof proves what deploy/chart and docs/security.md say of rights. Its tests run rollcall's programs on a real
// control plane as the chart's service accounts, with tokens bound to pods as a kubelet's are, and with exactly the chart's
// roles and policies. It has no code but tests, and knows the programs by their command lines only.
package proof
