package fate

import "time"

// Options choose how much of a Roll is worked out.
type Options struct {
	// Now is the time of the question, for activeDeadlineSeconds and the like.
	Now time.Time
	// Place adds the simulation of section 4: placements, and the verdict Stranded for lack of room (rule 14).
	Place bool
	// AssumeGrowth answers NeedsNode where no Ready node has room although no NodePool could launch one: for clusters that
	// cluster-autoscaler grows.
	AssumeGrowth bool
}

// A Roll is the answer for one set of going nodes over one World. It remembers what it worked out and is not safe for
// concurrent use.
//
//	New(world, going, options)     all nodes that go together
//	roll.On(node)                  fate of every pod on a going node
//	roll.Collateral(node)          pods on staying nodes that this going node costs
//	roll.Inbound(node)             pods on this staying node that going nodes cost, By filled
//	roll.With(departure)           the same question with one more node going
