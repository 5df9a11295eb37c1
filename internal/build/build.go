// Package build owns what a binary says of itself: which version it is, of which revision, built by which Go. It knows no
// flag and prints nothing.
package build

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// Unknown stands for a revision that the build did not record.
const Unknown = "unknown"

// Set by the linker where a release is built: -X github.com/rollcall-dev/rollcall/internal/build.version=v0.1.0, and the
// same of revision where the sources come without their .git.
var (
	version  = "dev"
	revision = ""
)

// Version is the release, such as v0.1.0, or "dev".
func Version() string { return version }

// Revision is the commit that the binary was built from, with "-dirty" behind it where the tree had changes; Unknown where
// the build recorded none, as in a test.
func Revision() string {
	info, _ := debug.ReadBuildInfo() // nil only in binaries that were built without modules
	return revisionOf(revision, info)
}

// revisionOf prefers what the linker was told to what the Go command recorded.
func revisionOf(linked string, info *debug.BuildInfo) string {
	if linked != "" {
		return linked
	}
	if info == nil {
		return Unknown
	}
	settings := map[string]string{}
	for _, setting := range info.Settings {
		settings[setting.Key] = setting.Value
	}
	commit := settings["vcs.revision"]
	switch {
	case commit == "":
		return Unknown
	case settings["vcs.modified"] == "true":
		return commit + "-dirty"
	}
	return commit
}

// Line is all of it on one line, for --version.
func Line() string {
	return fmt.Sprintf("%s (revision %s, %s, %s/%s)", Version(), Revision(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
