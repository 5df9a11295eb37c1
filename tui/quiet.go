package tui

import (
	"log"
	"os"

	"k8s.io/klog/v2"
)

// Quiet sends to a file what else would be painted over the screen: the Kubernetes client's log, and what credential
// plugins and others write to standard error. It also takes standard input from them: a plugin that asks would take every
// second key from the UI, whose own input is the file that it is given (Options.In): have it before. Call Quiet before the
// client's configuration is made: client-go keeps the os.Stdin and os.Stderr of that moment for its plugins
// (facts/terminal-ui.md A6.7). restore gives both back.
func Quiet(file *os.File) (restore func()) {
	stdin, stderr := os.Stdin, os.Stderr
	os.Stderr = file
	// What cannot be opened is nil, and reading it fails: also no keyboard.
	os.Stdin, _ = os.Open(os.DevNull)
	log.SetOutput(file) // and with it slog's default
	klog.ClearLogger()
	klog.LogToStderr(false)
	klog.SetOutput(file)
	return func() {
		_ = os.Stdin.Close()
		os.Stdin, os.Stderr = stdin, stderr
		log.SetOutput(stderr)
	}
}
