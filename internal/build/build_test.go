package build

import (
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
)

func TestRevision(t *testing.T) {
	recorded := func(modified string) *debug.BuildInfo {
		return &debug.BuildInfo{Settings: []debug.BuildSetting{
			{Key: "vcs", Value: "git"}, {Key: "vcs.revision", Value: "0123abc"}, {Key: "vcs.modified", Value: modified},
		}}
	}
	for name, tc := range map[string]struct {
		linked string
		info   *debug.BuildInfo
		want   string
	}{
		"recorded by the Go command":        {"", recorded("false"), "0123abc"},
		"of a tree with changes":            {"", recorded("true"), "0123abc-dirty"},
		"the linker knows better":           {"fedc", recorded("true"), "fedc"},
		"sources without a repository":      {"", &debug.BuildInfo{}, Unknown},
		"a binary that says nothing at all": {"", nil, Unknown},
	} {
		t.Run(name, func(t *testing.T) {
			if got := revisionOf(tc.linked, tc.info); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// What the linker is told reaches --version: the names of the variables are part of the image's recipe.
func TestLinkerSetsVersion(t *testing.T) {
	const variables = "github.com/rollcall-dev/rollcall/internal/build."
	binary := filepath.Join(t.TempDir(), "rollcall-agent")
	flags := "-X " + variables + "version=v9.8.7 -X " + variables + "revision=0123abc"
	if out, err := exec.Command("go", "build", "-ldflags", flags, "-o", binary, "../../cmd/rollcall-agent").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	out, err := exec.Command(binary, "--version").Output()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(string(out), "rollcall-agent v9.8.7 (revision 0123abc, go1.") {
		t.Errorf("--version says %q", out)
	}
}
