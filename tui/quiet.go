package tui

import (
	"log"
	"os"

	"k8s.io/klog/v2"
)

// Quiet sends to a file what else would be painted over the screen: the Kubernetes client's log, and what credential
// plugins and others write to standard error. Call it before the client's configuration is made: client-go keeps the
// os.Stderr of that moment for its plugins (facts/terminal-ui.md A6.7). restore gives standard error back.
func Quiet(file *os.File) (restore func()) {
	stderr := os.Stderr
	os.Stderr = file
	log.SetOutput(file) // and with it slog's default
	klog.ClearLogger()
	klog.LogToStderr(false)
	klog.SetOutput(file)
	return func() {
		os.Stderr = stderr
		log.SetOutput(stderr)
	}
}
