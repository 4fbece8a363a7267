//go:build !unix

package repeats

import "os/exec"

// startInGroup does nothing: the end of its context kills a command without its children.
func startInGroup(*exec.Cmd) {}
