package kind_test

import (
	"os"
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

// Every step of the scripts that play something says what to look at.
func TestStepsSayWhatToLookAt(t *testing.T) {
	for _, script := range []string{"install.sh", "interruption.sh", "outofcpu.sh", "mirror-pod.sh", "cleanup.sh"} {
		text, err := os.ReadFile(script)
		if err != nil {
			t.Fatal(err)
		}
		steps := strings.Split("\n"+string(text), "step \"")[1:]
		for _, step := range steps {
			if !strings.Contains(step, "look \"") {
				title, _, _ := strings.Cut(step, "\"")
				t.Errorf("%s: the step %q says nothing of what to look at", script, title)
			}
		}
		if len(steps) < 2 {
			t.Errorf("%s has %d steps", script, len(steps))
		}
	}
}
