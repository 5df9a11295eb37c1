package kind_test

import (
	"os/exec"
	"strings"
	"testing"
)

// Every shell script of the repository passes shellcheck.
func TestShellcheck(t *testing.T) {
	if _, err := exec.LookPath("shellcheck"); err != nil {
		t.Fatal("shellcheck is not installed: apt-get install shellcheck, or the package of your system")
	}
	list := exec.CommandContext(t.Context(), "git", "ls-files", "*.sh", ".ci/run")
	list.Dir = "../.."
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	scripts := strings.Fields(string(out))
	if len(scripts) < 2 {
		t.Fatalf("scripts: %q", scripts)
	}
	check := exec.CommandContext(t.Context(), "shellcheck", append([]string{"--external-sources", "--source-path=SCRIPTDIR"}, scripts...)...)
	check.Dir = "../.."
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
