package stream

import "time"

// State is everything that a client knows as of one record. It never changes once it was handed out; rows are shared
// between states and must not be changed either.
type State struct {
	Server   Server
	Sequence uint64
	Time     time.Time // of the last record, by the controller's clock

	Queue     Totals
	Keys      []*Key
	Going     []*GoingNode
	Pods      map[string][]*Pod // by the going node's name
	Coming    []*ComingNode
	Standing  []*Standing
	Decisions []*Decision // oldest first, bounded
	Left      map[string]int
	// LostDecisions counts decisions that were made while this client was connected to the boot and that it never got.
	LostDecisions uint64

	pods []*Pod // all of Pods, by identity
}

// Phase is the state of a client's connection.
type Phase string

// The phases.
const (
	Connecting   Phase = "connecting"
	Live         Phase = "live"
	Disconnected Phase = "disconnected" // and trying again at Retry
	Ended        Phase = "ended"        // a replayed file has no more
)

// A Frame is what a client shows: what it knows, and how well it is connected.
type Frame struct {
	State *State // nil before the first snapshot
	Phase Phase
	Since time.Time // of the phase, by the client's clock
	Retry time.Time // of the next attempt, while Disconnected
	// Received is when the last record came, by the client's clock.
	Received time.Time
	// Notice is one line on why the connection is as it is; empty while all is well.
	Notice string
	// Err is what Notice is made of, a ConnectError where there is a way out; nil while all is well.
	Err error
	// Peer is what the client is connected to: a pod, an address, a file, this process.
	Peer string
	// FellBehind counts how often this client was cut for being slow; Reconnects how often it came back.
	FellBehind int
	Reconnects int
}
