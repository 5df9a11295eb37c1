//go:build unix

package tui

import "golang.org/x/sys/unix"

// shellWaits tells whether this process is a shell's job, which the shell resumes once it is stopped. A terminal's first
// program, such as that of kubectl exec, has nobody who would: stopped, it would hang.
func shellWaits() bool {
	session, err := unix.Getsid(0)
	return err == nil && session != unix.Getpgrp()
}
