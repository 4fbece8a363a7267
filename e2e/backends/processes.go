package backends

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// isRunning reports whether a process exists and has not ended. A zombie, which its parent has
// not waited for yet, has ended.
func isRunning(pid int) bool {
	if state := stateOf(pid); state != 0 {
		return state != 'Z'
	}
	return syscall.Kill(pid, 0) == nil
}

// stateOf returns the letter of a process's state, as ps shows it; 0 if it is not known.
func stateOf(pid int) byte {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, after, _ := bytes.Cut(stat, []byte(") ")) // the name in parentheses may contain spaces
	if err != nil || len(after) == 0 {
		return 0
	}
	return after[0]
}

// childrenOf returns the running child processes of a process.
func childrenOf(parent int) (pids []int, err error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("looking for the children of process %d: %w", parent, err)
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue // not a process
		}
		stat, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue // the process has ended meanwhile
		}
		_, after, _ := bytes.Cut(stat, []byte(") "))
		if fields := bytes.Fields(after); len(fields) > 1 && string(fields[1]) == strconv.Itoa(parent) {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// suspend stops processes with SIGSTOP and returns a function that resumes them. suspend returns after the processes
// have stopped. A process inside fork stops only after the fork, and its new child would continue to run. A helper
// shell resumes the processes when its input ends, so that they also resume if this program dies.
func suspend(pids []int) (resume func() error, err error) {
	words := make([]string, len(pids))
	for i, pid := range pids {
		words[i] = strconv.Itoa(pid)
	}
	guard := exec.Command("sh", "-c", "cat >/dev/null; kill -CONT "+strings.Join(words, " "))
	guard.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a Ctrl-C ends this program, not the guard
	in, err := guard.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("stopping processes: %w", err)
	}
	if err := guard.Start(); err != nil {
		return nil, fmt.Errorf("stopping processes: starting the shell that resumes them: %w", err)
	}
	resume = func() error {
		_ = in.Close()
		return guard.Wait()
	}
	for _, pid := range pids {
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			_ = resume()
			return nil, fmt.Errorf("stopping process %d: %w", pid, err)
		}
	}
	err = waitFor("the stop of processes", func() error {
		for _, pid := range pids {
			if state := stateOf(pid); state != 'T' && state != 'Z' && state != 0 {
				return fmt.Errorf("process %d has the state %c", pid, state)
			}
		}
		return nil
	})
	if err != nil {
		return nil, errors.Join(err, resume())
	}
	return resume, nil
}
