package queue

import (
	"log/slog"
	"os"
	"testing"
)

// full is how much of something a test does; ROLLCALL_FULL asks for more.
func full(usual, full int) int {
	if os.Getenv("ROLLCALL_FULL") != "" {
		return full
	}
	return usual
}

// TestMain keeps the thousands of failures that are asked for out of the log.
func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	os.Exit(m.Run())
}
