package fate

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/sets"
)

// Required affinity and anti-affinity between pods, as kube-scheduler's InterPodAffinity filter has it. Pods of going
// nodes are no neighbours: they are gone when it matters. Terminating pods of staying nodes still are.

type neighbour struct {
	pod  *corev1.Pod
	site *site
}

type namespaceLabels = labels.Set

// A podTerm is a parsed corev1.PodAffinityTerm.
type podTerm struct {
	key        string // topology key
	namespaces sets.Set[string]
	selective  bool // there is a namespace selector
	nsSelector labels.Selector
	selector   labels.Selector
}

// newPodTerm parses a term of pod p. matchLabelKeys and mismatchLabelKeys are merged as the API server merges them at
// creation, which is harmless to repeat. What cannot be parsed selects nothing.
func newPodTerm(p *corev1.Pod, t *corev1.PodAffinityTerm) podTerm {
	term := podTerm{key: t.TopologyKey, namespaces: sets.New(t.Namespaces...)}
	if len(t.Namespaces) == 0 && t.NamespaceSelector == nil {
		term.namespaces.Insert(p.Namespace)
	}
	term.selective = t.NamespaceSelector != nil
	term.nsSelector = selectorOrNothing(t.NamespaceSelector)
	term.selector = selectorOrNothing(t.LabelSelector)
	term.selector = mergeLabelKeys(term.selector, selection.In, t.MatchLabelKeys, p.Labels)
	term.selector = mergeLabelKeys(term.selector, selection.NotIn, t.MismatchLabelKeys, p.Labels)
	return term
}

func selectorOrNothing(s *metav1.LabelSelector) labels.Selector {
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return labels.Nothing()
	}
	return selector
}

// mergeLabelKeys adds the pod's own value of each key to the selector; keys that the pod lacks are ignored.
func mergeLabelKeys(s labels.Selector, op selection.Operator, keys []string, own map[string]string) labels.Selector {
	for _, key := range keys {
		v, ok := own[key]
		if !ok {
			continue
		}
		if r, err := labels.NewRequirement(key, op, []string{v}); err == nil {
			s = s.Add(*r)
		}
	}
	return s
}

func (t *podTerm) matches(p *placer, pod *corev1.Pod) bool {
	if !t.namespaces.Has(pod.Namespace) && !t.nsSelector.Matches(p.labelsOf(pod.Namespace)) {
		return false
	}
	return t.selector.Matches(labels.Set(pod.Labels))
}

// labelsOf returns a namespace's labels. The API server gives each its own name as one, so that trimmed input without
// the Namespace still answers the usual selector.
func (p *placer) labelsOf(namespace string) namespaceLabels {
	if l, ok := p.namespace[namespace]; ok {
		return l
	}
	l := namespaceLabels{corev1.LabelMetadataName: namespace}
	if ns := p.world.Namespace(namespace); ns != nil {
		for k, v := range ns.Labels {
			l[k] = v
		}
	}
	p.namespace[namespace] = l
	return l
}

// A tally counts the pods that match all of its terms, by topology value and term. Pods with the same terms share it.
type tally struct {
	terms []podTerm
	count []map[string]int
	total int
}

func (t *tally) matches(p *placer, pod *corev1.Pod) bool {
	for i := range t.terms {
		if !t.terms[i].matches(p, pod) {
			return false
		}
	}
	return true
}

func (t *tally) add(p *placer, pod *corev1.Pod, st *site) {
	if !t.matches(p, pod) {
		return
	}
	for i := range t.terms {
		if v, ok := st.labels[t.terms[i].key]; ok {
			t.count[i][v]++
			t.total++
		}
	}
}

// satisfied is the affinity of the pod: matching pods in the site's domain of every term; or no matching pod anywhere,
// and the pod itself matches: it is the first of its group.
func (t *tally) satisfied(p *placer, pod *corev1.Pod, st *site) bool {
	all := true
	for i := range t.terms {
		v, ok := st.labels[t.terms[i].key]
		if !ok {
			return false
		}
		all = all && t.count[i][v] > 0
	}
	return all || t.total == 0 && t.matches(p, pod)
}

// namespaces are those that the terms can reach, nil for all.
func (t *tally) namespaces() sets.Set[string] {
	reach := sets.New[string]()
	for i := range t.terms {
		if t.terms[i].selective {
			return nil
		}
		reach = reach.Union(t.terms[i].namespaces)
	}
	return reach
}

// tallyOf finds or counts the tally of a set of terms of pod p.
func (s *simulation) tallyOf(p *corev1.Pod, terms []corev1.PodAffinityTerm) *tally {
	key := termsKey(p, terms)
	if t, ok := s.tallies[key]; ok {
		return t
	}
	t := &tally{}
	for i := range terms {
		t.terms = append(t.terms, newPodTerm(p, &terms[i]))
		t.count = append(t.count, map[string]int{})
	}
	s.eachNeighbour(t.namespaces(), func(pod *corev1.Pod, st *site) { t.add(s.placer, pod, st) })
	s.tallies[key] = t
	return t
}

// termsKey is equal where the terms mean the same: they name the namespace and the values of label keys only implicitly.
func termsKey(p *corev1.Pod, terms []corev1.PodAffinityTerm) string {
	var values []string
	for i := range terms {
		for _, keys := range [][]string{terms[i].MatchLabelKeys, terms[i].MismatchLabelKeys} {
			for _, k := range keys {
				values = append(values, k, p.Labels[k])
			}
		}
	}
	return signature(p.Namespace, terms, values)
}

// readTerms sets the guest's own affinity and anti-affinity.
func (s *simulation) readTerms(g *guest) {
	a := g.pod.Spec.Affinity
	if a == nil {
		return
	}
	if a.PodAffinity != nil && len(a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution) > 0 {
		g.affinity = s.tallyOf(g.pod, a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution)
	}
	for i := range antiAffinityTerms(g.pod) {
		// Each term repels on its own.
		g.antiAffinity = append(g.antiAffinity, s.tallyOf(g.pod, antiAffinityTerms(g.pod)[i:i+1]))
	}
}

func antiAffinityTerms(p *corev1.Pod) []corev1.PodAffinityTerm {
	if a := p.Spec.Affinity; a != nil && a.PodAntiAffinity != nil {
		return a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	}
	return nil
}

// repelledBy returns the guest's anti-affinity term that a pod in the site's domain offends, nil where none is.
func (g *guest) repelledBy(st *site) *podTerm {
	for _, t := range g.antiAffinity {
		if v, ok := st.labels[t.terms[0].key]; ok && t.count[0][v] > 0 {
			return &t.terms[0]
		}
	}
	return nil
}

// A standing is an anti-affinity term of pods that are there. Equal terms are one.
type standing struct {
	term    podTerm
	holders []resident
}

// stand enters the anti-affinity of a resident.
func (p *placer) stand(r resident) {
	terms := antiAffinityTerms(r.pod)
	for i := range terms {
		held := p.standingOf(r.pod, terms[i:i+1])
		held.holders = append(held.holders, r)
	}
}

// standingOf finds or makes the standing of one term of a pod.
func (p *placer) standingOf(pod *corev1.Pod, term []corev1.PodAffinityTerm) *standing {
	key := termsKey(pod, term)
	held, ok := p.terms[key]
	if !ok {
		held = &standing{term: newPodTerm(pod, &term[0])}
		p.terms[key] = held
		p.standing = append(p.standing, held)
	}
	return held
}

// A blocker is a standing term that is against a guest, with a pod that holds it by topology value.
type blocker struct {
	key    string
	holder map[string]*corev1.Pod
}

// blockers returns the standing terms that are against the pod.
func (s *simulation) blockers(pod *corev1.Pod) []blocker {
	var against []blocker
	for _, held := range s.standing {
		if held.term.matches(s.placer, pod) {
			against = append(against, blocker{held.term.key, s.holdersOf(held)})
		}
	}
	return against
}

// holdersOf says in which domains a standing term is held by pods that stay or were seated.
func (s *simulation) holdersOf(held *standing) map[string]*corev1.Pod {
	if m, ok := s.against[held]; ok {
		return m
	}
	m := map[string]*corev1.Pod{}
	for _, r := range held.holders {
		if v, ok := s.sites[r.site].labels[held.term.key]; ok && m[v] == nil && s.stays(r) {
			m[v] = r.pod
		}
	}
	s.against[held] = m
	return m
}

// blockerOn returns a pod in the site's domain whose anti-affinity is against the guest, nil where none is.
func (g *guest) blockerOn(st *site) *corev1.Pod {
	for _, b := range g.blockers {
		if v, ok := st.labels[b.key]; ok && b.holder[v] != nil {
			return b.holder[v]
		}
	}
	return nil
}

// eachNeighbour visits the pods that count for inter-pod rules: residents that stay, then those seated so far. Namespaces
// nil is all.
func (s *simulation) eachNeighbour(namespaces sets.Set[string], visit func(*corev1.Pod, *site)) {
	resident := func(r resident) {
		if s.stays(r) {
			visit(r.pod, &s.sites[r.site])
		}
	}
	if namespaces == nil {
		for _, rs := range s.residents {
			for _, r := range rs {
				resident(r)
			}
		}
	}
	for ns := range namespaces {
		for _, r := range s.local[ns] {
			resident(r)
		}
	}
	for _, n := range s.seated {
		visit(n.pod, n.site)
	}
}

// greet makes the pod a neighbour on the site: all counts know it from now on.
func (s *simulation) greet(pod *corev1.Pod, st *site) {
	s.seated = append(s.seated, neighbour{pod, st})
	for _, t := range s.tallies {
		t.add(s.placer, pod, st)
	}
	for _, sp := range s.spreads {
		sp.add(pod, st)
	}
	terms := antiAffinityTerms(pod)
	for i := range terms {
		if v, ok := st.labels[terms[i].TopologyKey]; ok {
			holders := s.holdersOf(s.standingOf(pod, terms[i:i+1]))
			if holders[v] == nil {
				holders[v] = pod
			}
		}
	}
}
