package stream

import (
	"sync"
	"time"
)

// linger is how long a coming node is shown after it has come: long enough for a person to see it.
const linger = time.Minute

// Arrivals puts the rows of coming nodes together: who follows the NodeClaims knows one half of them, who holds nodes
// until they are ready the other, and neither knows of the other. Safe for concurrent use.
type Arrivals struct {
	hub   *Hub
	clock func() time.Time

	mu      sync.Mutex             // guards all below; taken before the hub's
	claims  map[string]*ComingNode // by identity
	claimOf map[string]string      // identity of the claim, by the node's name
	holds   map[string]*ComingNode // by the node's name
	ends    map[string]time.Time   // when rows end that are shown and have come, by identity
}

// NewArrivals makes Arrivals that put rows into the hub.
func NewArrivals(hub *Hub, clock func() time.Time) *Arrivals {
	a := &Arrivals{
		hub: hub, clock: clock,
		claims: map[string]*ComingNode{}, claimOf: map[string]string{}, holds: map[string]*ComingNode{}, ends: map[string]time.Time{},
	}
	hub.Poll(a.expire)
	return a
}

// Claim gives what a NodeClaim says. The row is the Arrivals' from then on.
func (a *Arrivals) Claim(row *ComingNode) {
	a.mu.Lock()
	defer a.mu.Unlock()
	before := ""
	if old := a.claims[row.ID]; old != nil && old.Node != row.Node {
		before = old.Node
		a.unname(old)
	}
	a.claims[row.ID] = row
	if row.Node != "" {
		a.claimOf[row.Node] = row.ID
	}
	a.show(before)
	a.showClaim(row)
}

// ClaimGone tells that the NodeClaim of that identity is no more, or that its node is not coming any more.
func (a *Arrivals) ClaimGone(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	old := a.claims[id]
	if old == nil {
		return
	}
	delete(a.claims, id)
	a.unname(old)
	a.drop(id)
	a.show(old.Node)
}

// unname forgets which claim the node has. The lock is held, as for all below.
func (a *Arrivals) unname(claim *ComingNode) {
	if a.claimOf[claim.Node] == claim.ID {
		delete(a.claimOf, claim.Node)
	}
}

// Held gives what is known of the readiness of the node of that name: the fields from Held on, and an ID, Created and
// NodePool for a node without a NodeClaim. The row is the Arrivals' from then on.
func (a *Arrivals) Held(row *ComingNode) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if old := a.holds[row.Node]; old != nil && old.ID == row.ID {
		row.Released = old.Released
		if old.Held && !row.Held {
			row.Released = a.clock()
		}
	} else if old != nil {
		a.drop(old.ID) // another node of that name
	}
	if row.Held {
		row.Released = time.Time{} // the taint came back
	}
	a.holds[row.Node] = row
	a.show(row.Node)
}

// HeldGone tells that nothing is known of the readiness of that node any more.
func (a *Arrivals) HeldGone(node string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if old := a.holds[node]; old != nil {
		delete(a.holds, node)
		a.drop(old.ID)
		a.show(node)
	}
}

// show puts the row of the node.
func (a *Arrivals) show(node string) {
	hold := a.holds[node]
	if claim := a.claims[a.claimOf[node]]; claim != nil {
		a.showClaim(claim)
	} else if hold != nil {
		a.put(*hold, hold.Released)
	}
}

func (a *Arrivals) showClaim(claim *ComingNode) {
	row, came := *claim, claim.Initialized
	if hold := a.holds[claim.Node]; hold != nil && claim.Node != "" {
		a.drop(hold.ID) // it may have been shown before its claim was known
		row.Held, row.Warned, row.Status, row.Reason, row.Message = hold.Held, hold.Warned, hold.Status, hold.Reason, hold.Message
		row.Expected, row.Missing, row.Released = hold.Expected, hold.Missing, hold.Released
		if hold.Released.After(came) {
			came = hold.Released
		}
	}
	a.put(row, came)
}

// put shows a row, one that has come for a while only.
func (a *Arrivals) put(row ComingNode, came time.Time) {
	coming := row.Held || row.NodeClaim != "" && row.Initialized.IsZero()
	end := came.Add(linger)
	switch {
	case coming:
		delete(a.ends, row.ID)
	case !end.After(a.clock()):
		a.drop(row.ID)
		return
	default:
		a.ends[row.ID] = end
	}
	a.hub.Put(Content{Coming: []*ComingNode{&row}})
}

func (a *Arrivals) drop(id string) {
	delete(a.ends, id)
	a.hub.Put(Content{Gone: &Gone{Coming: []string{id}}})
}

// expire drops rows of nodes that have come a while ago; it is a Source.
func (a *Arrivals) expire() Content {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.clock()
	var gone Gone
	for id, end := range a.ends {
		if !end.After(now) {
			delete(a.ends, id)
			gone.Coming = append(gone.Coming, id)
		}
	}
	return Content{Gone: &gone}
}
