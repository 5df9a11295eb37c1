package livecluster

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"syscall"
)

// Ports are chosen below those that systems give to outgoing connections (from 32768 on Linux, 49152 elsewhere): between
// FreePorts and the start of who listens, a connection could else be given one of them. demo/cluster does the same for its own.
const firstPort, endOfPorts = 10_000, 30_000

// FreePorts returns n ports of 127.0.0.1 that nobody listens on now, for a program that must be told its ports. They are
// chosen at random, so that programs started at once are not told the same.
func FreePorts(n int) ([]int, error) {
	ports := make([]int, 0, n)
	for range 100 + n {
		port := firstPort + rand.IntN(endOfPorts-firstPort)
		listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("looking for a free port: %w", err)
		}
		defer listener.Close()
		if ports = append(ports, port); len(ports) == n {
			return ports, nil
		}
	}
	return nil, fmt.Errorf("no %d ports of 127.0.0.1 between %d and %d are free", n, firstPort, endOfPorts)
}
