package queue

// A Key names one thing to reconcile.
type Key struct {
	// Kind says whose key it is and what it asks; each kind is one reconciler's.
	Kind      string
	Namespace string // empty for what has none
	Name      string
}

func (k Key) String() string {
	if k.Namespace == "" {
		return k.Kind + " " + k.Name
	}
	return k.Kind + " " + k.Namespace + "/" + k.Name
}
