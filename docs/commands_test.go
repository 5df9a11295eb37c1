// Package docs_test holds the documents to their word: every command that they show is run by a test, or is listed with what
// it needs that no test has.
package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A proof is why a command in a document may be believed.
type proof struct {
	// phase is when TestCommandsWork runs it: 1 before the installation, 2 while rollcall works, 3 after its removal; 0 for commands
	// that it does not run.
	phase int
	// dir and test are the test that runs it elsewhere.
	dir, test string
	// needs is what it needs that no test here has.
	needs string
}

var (
	prepares = proof{phase: 1}
	works    = proof{phase: 2}
	removed  = proof{phase: 3}
	named    = proof{needs: "arguments: a sentence names the command by it"}
	flags    = proof{dir: "deploy", test: "TestProgramsKnowTheirFlags"}
	script   = proof{dir: "demo/kind", test: "TestScripts"}
	replayed = proof{needs: "a recording of one's own; tui/ replays the project's"}
	streamed = proof{dir: "cmd/kubectl-rollcall", test: "TestStreamOnce"}
	kind     = proof{needs: "kind, or another cluster that runs images"}
	helm     = proof{needs: "Helm's command line and a cluster that runs images; the chart itself is rendered by Helm's code in deploy/"}
	measures = proof{needs: "a quiet machine, and time"}
	task     = proof{needs: "nothing but Go: it is what CI runs"}
)

// commands are all commands of the documents, without what they say about them.
var commands = map[string]proof{
	"go run ./demo":                                  {dir: "demo", test: "TestReadmeDemo"},
	"go run ./demo --plain":                          {dir: "demo", test: "TestPlainOnTerminal"},
	"go tool -modfile=tools/task/go.mod task test":   task,
	"go tool -modfile=tools/task/go.mod task lint":   task,
	"go tool -modfile=tools/task/go.mod task --list": works,
	"VERSION=0.1.0 deploy/image/build.sh":            {needs: "docker, podman or buildah"},
	"go build -o bin/ ./cmd/kubectl-rollcall":        works,
	"demo/kind/cluster.sh create":                    kind,
	"demo/kind/cluster.sh delete":                    kind,
	"demo/kind/install.sh":                           script,
	"demo/kind/interruption.sh":                      script,
	"demo/kind/outofcpu.sh":                          script,
	"demo/kind/mirror-pod.sh":                        script,
	"demo/kind/ui.sh":                                script,
	"demo/kind/cleanup.sh":                           script,
	"helm upgrade rollcall deploy/chart --namespace rollcall-system --reset-then-reuse-values":                                                                                                   helm,
	"helm upgrade rollcall deploy/chart --namespace rollcall-system --reset-then-reuse-values --set rbac.agent=false --set 'agent.extraArgs={--kubeconfig=/etc/kubernetes/rollcall-agent.conf}'": helm,
	"helm install":  named,
	"helm template": named,
	"helm uninstall rollcall --namespace rollcall-system": helm,
	"helm install rollcall deploy/chart --namespace rollcall-system --create-namespace --set image.controller.repository=REGISTRY/rollcall-controller --set image.agent.repository=REGISTRY/rollcall-agent": helm,
	"kubectl -n rollcall-system rollout status deployment/rollcall-controller": kind,
	"kubectl -n rollcall-system logs deployment/rollcall-controller":           kind,

	"kubectl rollcall stream":                          streamed,
	"kubectl rollcall stream -o json":                  streamed,
	"kubectl rollcall stream --once -o json":           streamed,
	"kubectl rollcall stream --record FILE":            streamed,
	"kubectl rollcall --replay FILE --speed 10":        replayed,
	"kubectl rollcall --replay spot.ndjson --speed 10": replayed,
	"kubectl rollcall":                                 {dir: "cmd/kubectl-rollcall", test: "TestLiveView"},
	"kubectl rollcall --local":                         {dir: "cmd/kubectl-rollcall", test: "TestLocalView"},

	"kubectl apply --server-side -f deploy/manifests/install.yaml":            works,
	"kubectl apply -f deploy/crds/podlosses.yaml":                             works,
	"kubectl rollcall version":                                                works,
	"kubectl rollcall check --all":                                            works,
	"kubectl rollcall check --all-disrupted":                                  works,
	"kubectl rollcall check spot-1 --show-all":                                works,
	"kubectl get ploss -A":                                                    works,
	"kubectl rollcall losses --since 24h":                                     works,
	"kubectl rollcall losses --since 1h":                                      works,
	"kubectl rollcall losses -n shop --since 1h -o yaml | kubectl apply -f -": works,
	"kubectl -n rollcall-system get lease rollcall-controller":                works,
	"kubectl rollcall mirrors worker-1":                                       works,
	"kubectl taint node worker-1 readiness.k8s.io/StaticPodsMirrored-":        works,
	"kubectl apply -f deploy/readiness-rule.yaml":                             works,
	"kubectl rollcall cleanup --dry-run":                                      removed,
	"kubectl rollcall cleanup --yes":                                          removed,
	"kubectl delete -f deploy/readiness-rule.yaml --ignore-not-found":         removed,
	"kubectl delete crd podlosses.rollcall.dev --ignore-not-found":            removed,
	"kubectl delete namespace rollcall-system --ignore-not-found":             removed,

	"kubectl create namespace rollcall-system":                                                 prepares,
	"kubectl label namespace rollcall-system pod-security.kubernetes.io/enforce=privileged":    prepares,
	"kubectl apply -f deploy/impersonation/agent.yaml":                                         works,
	"kubectl -n rollcall-system get pods":                                                      works,
	"kubectl auth can-i --list --as=system:serviceaccount:rollcall-system:rollcall-controller": works,
	"kubectl get validatingadmissionpolicybindings":                                            works,
	"kubectl delete -f deploy/manifests/install.yaml":                                          script,
	"kubectl rollcall check":                                                                   named,
	"kubectl rollcall losses":                                                                  works,
	"kubectl rollcall mirrors":                                                                 named,
	"kubectl rollcall mirrors NODE":                                                            named,
	"kubectl rollcall cleanup":                                                                 named,
	"kubectl rollcall --help":                                                                  works,
	"kubectl drain":                                                                            named,
	"kubectl get nodes":                                                                        works,
	"rollcall-controller --help":                                                               flags,
	"rollcall-agent --help":                                                                    flags,
	"rollcall-agent --standalone":                                                              flags,
	"rollcall-agent --kubelet-pods-url":                                                        flags,
	"rollcall-controller --release-taint":                                                      flags,

	"go run ./demo --keep":                                           {needs: "somebody who removes the cluster that it keeps"},
	"go test -v -run TestVerdictsHold ./karpenter/truth":             {dir: "karpenter/truth", test: "TestVerdictsHold"},
	"go test -v -run TestStartupTaintTrap ./karpenter/e2e":           {dir: "karpenter/e2e", test: "TestStartupTaintTrap"},
	"go test -v ./readiness/race":                                    task,
	"go test -v ./deploy/proof":                                      task,
	"go test ./karpenter/fate":                                       task,
	"task lint":                                                      task,
	"task bench":                                                     measures,
	"task cluster -- up":                                             {needs: "somebody who plays with the cluster; the tests start the same one"},
	"task cluster -- node add n1":                                    {needs: "somebody who plays with the cluster; the tests add nodes as it does"},
	"go test ./deploy -run TestManifests -update":                    {dir: "deploy", test: "TestManifests"},
	"go test -run '^$' -bench . -benchtime 1x ./internal/queue":      measures,
	"go test ./internal/stream -run '^$' -bench Storm -benchtime 1x": measures,
}

var (
	fence    = regexp.MustCompile("^\\s*```(\\w*)")
	indented = regexp.MustCompile(`^    +((kubectl|helm|go|docker|curl|rollcall-\w+|demo/kind|deploy/image)[ /].*)`)
	remark   = regexp.MustCompile(`\s{2,}.*$`)
	// inline is a command in a sentence: the name of a program and at least one word.
	inline = regexp.MustCompile("`((kubectl|helm|go|task|rollcall-controller|rollcall-agent)\\s[^`]+)`")
)

// A command stands in a document.
type command struct {
	file string
	line int
	text string
}

// shown returns the commands of all documents, in their order.
func shown(t *testing.T) (found []command) {
	t.Helper()
	files, err := filepath.Glob("*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range append([]string{"../README.md", "../CONTRIBUTING.md"}, files...) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		language, fenced, prose := "", false, make([]string, 0, 256)
		for i, line := range strings.Split(string(text), "\n") {
			if m := fence.FindStringSubmatch(line); m != nil {
				fenced, language = !fenced, m[1]
				prose = append(prose, "")
				continue
			}
			if fenced {
				prose = append(prose, "")
			} else {
				prose = append(prose, line)
			}
			if said := commandIn(line, fenced, language); said != "" {
				found = append(found, command{file, i + 1, said})
			}
		}
		found = append(found, inSentences(file, strings.Join(prose, "\n"))...)
	}
	return found
}

// inSentences are the commands in the text between the blocks. One may go on in the next line.
func inSentences(file, prose string) (found []command) {
	for _, at := range inline.FindAllStringSubmatchIndex(prose, -1) {
		said := strings.Join(strings.Fields(prose[at[2]:at[3]]), " ")
		found = append(found, command{file, 1 + strings.Count(prose[:at[2]], "\n"), said})
	}
	return found
}

// commandIn is the command of a line: after the prompt in a block of a console, any line in one of a shell, and in an indented
// block what begins with a command's name.
func commandIn(line string, fenced bool, language string) string {
	said := ""
	switch trimmed := strings.TrimSpace(line); {
	case fenced && language == "console":
		said, _ = strings.CutPrefix(trimmed, "$ ")
		if said == trimmed {
			return ""
		}
	case fenced && language == "sh":
		said = trimmed
	case !fenced && indented.MatchString(line):
		said = trimmed
	}
	return remark.ReplaceAllString(said, "")
}

// Every command is listed, with a test that exists, and nothing is listed that no document shows.
func TestCommandsAreKnown(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range shown(t) {
		seen[c.text] = true
		if _, ok := commands[c.text]; !ok {
			t.Errorf("%s:%d: nobody runs %q: list it in docs/commands_test.go with the test that does, or with what it needs", c.file, c.line, c.text)
		}
	}
	for text, p := range commands {
		if !seen[text] {
			t.Errorf("no document shows %q", text)
		}
		if p.test != "" && !hasTest(t, filepath.Join("..", p.dir), p.test) {
			t.Errorf("%q is run by %s in %s, which does not exist", text, p.test, p.dir)
		}
	}
}

func hasTest(t *testing.T, dir, name string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "func "+name+"(t *testing.T)") {
			return true
		}
	}
	return false
}
