// Package stream owns what a running controller shows of itself to people, and its way to them: the records, the hub that
// merges them, the server that writes them as lines of JSON, and the client that reads them (DESIGN.md section 8). It
// decides nothing, and nothing that a reader does slows the controller.
package stream

import "time"

// Version is the schema's. A client refuses a snapshot of another major schema; new fields do not change it.
const Version = 1

// A Record is one line of the stream.
type Record struct {
	Kind     RecordKind `json:"kind"`
	Sequence uint64     `json:"seq"`  // counts up by one within a stream: records are merged for each reader on its own
	Time     time.Time  `json:"time"` // the controller's clock
	// Server is there in a snapshot.
	Server *Server `json:"server,omitempty"`
	// Content is all there is in a snapshot, and what changed in an update.
	Content
	// Message says why in a fell-behind record.
	Message string `json:"message,omitempty"`
}

// RecordKind says what a Record is.
type RecordKind string

// The kinds of records.
const (
	Snapshot   RecordKind = "snapshot"    // the first of a stream
	Update     RecordKind = "update"      // absolute values of what changed
	Heartbeat  RecordKind = "heartbeat"   // nothing changed, and the controller lives
	FellBehind RecordKind = "fell-behind" // the last of a stream whose reader was too slow
)

// Server is who speaks.
type Server struct {
	Version  int       `json:"version"` // of the schema
	Boot     string    `json:"boot"`    // another process, another boot
	Identity string    `json:"identity"`
	Program  string    `json:"program"` // the controller's own version
	Started  time.Time `json:"started"` // when it began to lead
	DryRun   bool      `json:"dryRun,omitempty"`
	// Heartbeat is the longest silence to expect.
	HeartbeatSeconds int `json:"heartbeatSeconds"`
}

// Content has the tables. A row that is there replaces the row of the same identity; Gone has the identities of rows that
// are no more.
type Content struct {
	Queue     *Totals       `json:"queue,omitempty"`
	Keys      []*Key        `json:"keys,omitempty"`
	Going     []*GoingNode  `json:"going,omitempty"`
	Pods      []*Pod        `json:"pods,omitempty"`
	Coming    []*ComingNode `json:"coming,omitempty"`
	Standing  []*Standing   `json:"standing,omitempty"`
	Decisions []*Decision   `json:"decisions,omitempty"` // in order; never replaced
	Gone      *Gone         `json:"gone,omitempty"`
	// Left has, by the table's name as above, how many rows there are beyond those that are sent. Rows are left out
	// because tables are bounded.
	Left map[string]int `json:"left,omitempty"`
}

// Gone has the identities of rows that are no more.
type Gone struct {
	Keys     []string `json:"keys,omitempty"`
	Going    []string `json:"going,omitempty"`
	Pods     []string `json:"pods,omitempty"`
	Coming   []string `json:"coming,omitempty"`
	Standing []string `json:"standing,omitempty"`
}

// KeyState is what a key of the workqueue does now.
type KeyState string

// The states of keys.
const (
	Queued     KeyState = "queued"
	Running    KeyState = "running"
	BackingOff KeyState = "backing-off" // after a failure, until Until
	Waiting    KeyState = "waiting"     // for a time that was asked for, until Until
	Idle       KeyState = "idle"
)

// A Key is one key of the workqueue. Identity: ID.
type Key struct {
	ID    string    `json:"id"` // Kind [Namespace/]Name
	Kind  string    `json:"kind"`
	State KeyState  `json:"state"`
	Since time.Time `json:"since"` // of the state
	// Until is when a key that backs off or waits is looked at again, about.
	Until time.Time `json:"until,omitzero"`
	// Class is what comes first in the queue's order: Committed, then Pending, then Rest.
	Class string `json:"class,omitempty"`
	// Kill is the next possible kill of a pod behind the key; the queue's order.
	Kill time.Time `json:"kill,omitzero"`
	// Again is set while the key runs and was asked for again.
	Again bool `json:"again,omitempty"`

	Added         int64 `json:"added"`
	DedupedQueued int64 `json:"dedupedQueued,omitempty"` // asked for while it was queued already
	DedupedRun    int64 `json:"dedupedRunning,omitempty"`
	Started       int64 `json:"started"`
	Failed        int64 `json:"failed,omitempty"`
	Failures      int   `json:"failures,omitempty"` // one after the other, since the last success

	LastError    string        `json:"lastError,omitempty"`
	LastDuration time.Duration `json:"lastDuration,omitempty"` // nanoseconds
}

// Totals are the queue's as a whole. Counts are since the boot.
type Totals struct {
	Depth      int       `json:"depth"` // queued
	Running    int       `json:"running"`
	BackingOff int       `json:"backingOff"`
	Waiting    int       `json:"waiting"`
	Known      int       `json:"known"`
	Oldest     time.Time `json:"oldest,omitzero"` // since when the oldest queued key is queued
	Added      int64     `json:"added"`
	Deduped    int64     `json:"deduped"`
	Started    int64     `json:"started"`
	Done       int64     `json:"done"`
	Failed     int64     `json:"failed"`
	Workers    int       `json:"workers"`
	// Forgotten counts keys whose history was dropped to bound memory.
	Forgotten int64 `json:"forgotten,omitempty"`
}

// A GoingNode is a node in a state other than None, or with a stale signal. Identity: Name.
type GoingNode struct {
	Name           string    `json:"name"`
	State          string    `json:"state"`
	Cause          string    `json:"cause"`
	Shown          string    `json:"shown,omitempty"` // the cause as refined by Karpenter's own word
	Since          time.Time `json:"since"`
	SinceEstimated bool      `json:"sinceEstimated,omitempty"`
	Deadline       time.Time `json:"deadline,omitzero"`
	Stale          bool      `json:"stale,omitempty"`
	CapacityType   string    `json:"capacityType,omitempty"`
	NodePool       string    `json:"nodePool,omitempty"`
	NodeClaim      string    `json:"nodeClaim,omitempty"`
	WaitsFor       string    `json:"waitsFor,omitempty"` // Karpenter's condition, such as Drained
	WaitsWhy       string    `json:"waitsWhy,omitempty"`

	Pods       int            `json:"pods"`                 // that have not finished
	Verdicts   map[string]int `json:"verdicts,omitempty"`   // of pods on the node
	Collateral int            `json:"collateral,omitempty"` // pods elsewhere that it costs
	Marked     int            `json:"marked"`
}

// A Pod is one that a going node costs or frees, on it or elsewhere. Identity: UID.
type Pod struct {
	UID       string   `json:"uid"`
	Namespace string   `json:"namespace"`
	Name      string   `json:"name"`
	Node      string   `json:"node"`         // the going node
	On        string   `json:"on,omitempty"` // the node it runs on, where that is another (collateral)
	Verdict   string   `json:"verdict"`
	Reason    string   `json:"reason"`
	Certainty string   `json:"certainty"`
	Placement string   `json:"placement,omitempty"`
	Flags     []string `json:"flags,omitempty"`
	Message   string   `json:"message,omitempty"`
	Marked    bool     `json:"marked,omitempty"`
}

// A ComingNode is a NodeClaim or a node from its making to its release. Identity: ID.
type ComingNode struct {
	ID           string    `json:"id"` // the NodeClaim's UID where there is one, else the Node's
	Node         string    `json:"node,omitempty"`
	NodeClaim    string    `json:"nodeClaim,omitempty"`
	NodePool     string    `json:"nodePool,omitempty"`
	CapacityType string    `json:"capacityType,omitempty"`
	Created      time.Time `json:"created"`
	// Launched, Registered, Initialized are when Karpenter's conditions became True; zero until then.
	Launched    time.Time `json:"launched,omitzero"`
	Registered  time.Time `json:"registered,omitzero"`
	Initialized time.Time `json:"initialized,omitzero"`
	WaitsFor    string    `json:"waitsFor,omitempty"` // Karpenter's condition
	WaitsWhy    string    `json:"waitsWhy,omitempty"`

	// Held tells that the node bears the readiness taint; Warned that it was held for too long.
	Held     bool      `json:"held,omitempty"`
	Warned   bool      `json:"warned,omitempty"`
	Status   string    `json:"status,omitempty"` // of the condition StaticPodsMirrored
	Reason   string    `json:"reason,omitempty"`
	Message  string    `json:"message,omitempty"`
	Expected int       `json:"expected,omitempty"` // static pods
	Missing  []string  `json:"missing,omitempty"`  // namespace/name of those that are not mirrored
	Released time.Time `json:"released,omitzero"`
}

// A Standing is a healthy node with pods that would not come back if it went. Identity: Node.
type Standing struct {
	Node         string         `json:"node"`
	CapacityType string         `json:"capacityType,omitempty"`
	Verdicts     map[string]int `json:"verdicts"`
	Pods         []*StandingPod `json:"pods,omitempty"` // the first of those that would not come back
}

// A StandingPod is one pod of a Standing.
type StandingPod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Verdict   string `json:"verdict"`
	Reason    string `json:"reason"`
	Message   string `json:"message,omitempty"`
}

// A Decision is one line of the log of what the controller did.
type Decision struct {
	Sequence uint64    `json:"seq"` // counts up by one within a boot, so that a gap shows
	Time     time.Time `json:"time"`
	What     string    `json:"what"` // mark, clear, lost, condition, release, held, and the same with "would " in a dry run
	Object   string    `json:"object"`
	Node     string    `json:"node,omitempty"`
	Verdict  string    `json:"verdict,omitempty"`
	Reason   string    `json:"reason,omitempty"`
	Cause    string    `json:"cause,omitempty"`
	Why      string    `json:"why,omitempty"`
}
