// Command build puts the control plane's binary into the user's cache and prints its path.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"github.com/rollcall-dev/rollcall/internal/livecluster"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	binary, err := livecluster.Binary(ctx, os.Stderr, os.Getenv(livecluster.OptimisedEnv) != "")
	if err != nil {
		fmt.Fprintf(os.Stderr, "error: %v\n", err)
		os.Exit(1)
	}
	fmt.Println(binary)
}
