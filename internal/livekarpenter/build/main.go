// Command build puts Karpenter's binary into the user's cache and prints its path.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"github.com/rollcall-dev/rollcall/internal/livekarpenter"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	binary, err := livekarpenter.Binary(ctx, os.Stderr)
	if err != nil {
		fmt.Fprintf(os.Stderr, "error: %v\n", err)
		os.Exit(1)
	}
	fmt.Println(binary)
}
