// Package refusals owns what is said of rights that rollcall lacks. It asks for none and decides nothing: what goes on
// without the right is the caller's.
package refusals

import (
	"log/slog"
	"strings"
	"sync"
	"time"
)

// period is how often one missing right is reported: a person has time to mend the role before the next line.
const period = time.Minute

// Log reports missing rights, each once in a minute, however many requests fail for it. Safe for concurrent use.
type Log struct {
	clock func() time.Time

	mu   sync.Mutex
	last map[string]time.Time // guarded by mu; by verb and resource
}

// New makes a Log that has reported nothing.
func New(clock func() time.Time) *Log {
	return &Log{clock: clock, last: map[string]time.Time{}}
}

// Report says that the verb on the resource was refused. The namespace is only an example: the right is cluster-wide.
func (l *Log) Report(verb, resource, namespace string, err error) {
	if !l.due(verb + " " + resource) {
		return
	}
	advice := ": add the verb \"" + verb + "\" on the resource \"" + resource + "\" to rollcall's ClusterRole"
	if ByAdmission(err) {
		advice = ": an admission policy or webhook refuses it, which the error names; no role can give it"
	}
	slog.Error("not allowed to "+verb+" "+resource+advice+"; everything else goes on", "verb", verb, "resource", resource, "namespace", namespace, "error", err)
}

// ReportIn says it of a right that a Role in the namespace gives, and what does not go on without it.
func (l *Log) ReportIn(namespace, verb, resource, without string, err error) {
	if !l.due(verb + " " + resource + " in " + namespace) {
		return
	}
	slog.Error("not allowed to "+verb+" "+resource+": add the verb \""+verb+"\" on the resource \""+resource+
		"\" to rollcall's Role in namespace "+namespace+"; until then "+without, "verb", verb, "resource", resource, "namespace", namespace, "error", err)
}

// ByAdmission tells whether an error of the API server comes from an admission policy or a webhook, not from the lack of a
// right: both may be 403 (k8s.io/apiserver, pkg/admission/plugin/policy/validating and plugin/webhook/errors).
func ByAdmission(err error) bool {
	return strings.Contains(err.Error(), " denied request: ") || strings.Contains(err.Error(), " denied the request")
}

// due takes the right's turn in this period, if it is left.
func (l *Log) due(right string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.clock()
	if last, told := l.last[right]; told && now.Sub(last) < period {
		return false
	}
	l.last[right] = now
	return true
}
