// Package agent is the loop of rollcall-agent, for one node: it publishes the expected set on its Node and, where there is
// no controller, writes the Node's condition itself. It compares what should stand on the Node with what does, whenever
// either changes, and writes only differences; it keeps nothing on disk. It must not import karpenter, nor anything for
// terminals.
package agent
