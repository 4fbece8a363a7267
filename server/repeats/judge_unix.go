//go:build unix

package repeats

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
)

// startInGroup lets a command start in a process group of its own. The end of its context kills the group: the command
// and its children.
func startInGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error {
		err := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		if errors.Is(err, syscall.ESRCH) {
			return os.ErrProcessDone
		}
		return err
	}
}
