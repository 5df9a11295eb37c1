//go:build !unix

package tui

// shellWaits tells whether a shell would resume this process once it is stopped. Here nothing is stopped.
func shellWaits() bool { return false }
