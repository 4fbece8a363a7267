package backends

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// running reports whether a process exists and has not ended. One that nobody
// has waited for yet has ended.
func running(pid int) bool {
	if stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil {
		_, after, _ := bytes.Cut(stat, []byte(") ")) // the name before may have blanks
		return !bytes.HasPrefix(after, []byte("Z"))
	}
	return syscall.Kill(pid, 0) == nil
}

// children returns the processes that a process has started and that run.
func children(parent int) (pids []int, err error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("looking for the children of process %d: %w", parent, err)
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue // no process
		}
		stat, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue // it has ended meanwhile
		}
		_, after, _ := bytes.Cut(stat, []byte(") "))
		if fields := bytes.Fields(after); len(fields) > 1 && string(fields[1]) == strconv.Itoa(parent) {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// hold stops processes and returns what lets them go on. A shell waits for the
// end of its input, so that they go on also when this program dies: then nobody
// else would ever wake them.
func hold(pids []int) (resume func() error, err error) {
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
		return nil, fmt.Errorf("stopping processes: starting what wakes them: %w", err)
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
	return resume, nil
}
