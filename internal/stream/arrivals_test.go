package stream

import (
	"testing"
	"time"
)

// Two halves of a coming node become one row, whichever comes first; it lingers for a moment when the node has come.
func TestArrivals(t *testing.T) {
	hub, clock := newTestHub(t)
	arrivals := NewArrivals(hub, clock.Now)
	r := mustAttach(t, hub)
	client := &session{}
	// rows is what a client knows, as "identity:node" with marks for what is set.
	rows := func() (text string) {
		t.Helper()
		hub.refresh()
		clock.pass(updateEvery)
		record := r.next(clock.now)
		if record != nil {
			if _, err := client.apply(record); err != nil {
				t.Fatal(err)
			}
		}
		for _, row := range client.last.Coming {
			text += row.ID + ":" + row.Node
			for mark, set := range map[string]bool{" held": row.Held, " initialized": !row.Initialized.IsZero(), " released": !row.Released.IsZero()} {
				if set {
					text += mark
				}
			}
			text += ";"
		}
		return text
	}
	expect := func(what string, want ...string) {
		t.Helper()
		got := rows()
		for _, w := range want {
			if got == w {
				return
			}
		}
		t.Errorf("%s: %q, want %q", what, got, want)
	}
	expect("at first", "")
	arrivals.Claim(&ComingNode{ID: "c1", NodeClaim: "claim"})
	expect("a claim", "c1:;")
	arrivals.Held(&ComingNode{ID: "u1", Node: "n1", Held: true})
	expect("a node that is held, of nobody", "c1:;u1:n1 held;")
	arrivals.Claim(&ComingNode{ID: "c1", NodeClaim: "claim", Node: "n1"})
	expect("they are one", "c1:n1 held;")
	arrivals.Claim(&ComingNode{ID: "c1", NodeClaim: "claim", Node: "n1", Initialized: clock.now})
	expect("initialized and held", "c1:n1 held initialized;", "c1:n1 initialized held;")
	arrivals.Held(&ComingNode{ID: "u1", Node: "n1"})
	expect("released", "c1:n1 initialized released;", "c1:n1 released initialized;")
	clock.pass(linger - 2*updateEvery)
	expect("still shown", "c1:n1 initialized released;", "c1:n1 released initialized;")
	clock.pass(2 * updateEvery)
	expect("it has come", "")
	arrivals.Held(&ComingNode{ID: "u1", Node: "n1"})
	expect("it is seen again", "")
	arrivals.Held(&ComingNode{ID: "u1", Node: "n1", Held: true})
	expect("it is held again", "c1:n1 held initialized;", "c1:n1 initialized held;")
	arrivals.Held(&ComingNode{ID: "u2", Node: "n1"})
	expect("another machine of that name, and it is well", "")
	arrivals.ClaimGone("c1")
	arrivals.ClaimGone("c1")
	expect("its claim is gone", "")
	arrivals.Held(&ComingNode{ID: "u2", Node: "n1", Held: true})
	expect("a node without a claim", "u2:n1 held;")
	arrivals.HeldGone("n1")
	arrivals.HeldGone("n1")
	expect("nobody looks any more", "")
	arrivals.Claim(&ComingNode{ID: "c2", NodeClaim: "claim", Node: "n2", Initialized: clock.now.Add(-time.Hour)})
	expect("one that came long ago", "")
	arrivals.Claim(&ComingNode{ID: "c3", NodeClaim: "claim", Node: "n3"})
	arrivals.Held(&ComingNode{ID: "u3", Node: "n3", Held: true})
	arrivals.ClaimGone("c3")
	expect("the claim goes before its node", "u3:n3 held;")
	if n := len(arrivals.ends) + len(arrivals.claims) - 1; n != 0 {
		t.Errorf("%d remembered for nothing", n)
	}
}
