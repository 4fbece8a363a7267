package processes

import (
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"time"
)

// CPUTime returns the processor time of a process and its children so far. proc is /proc. The
// time of ended threads is missing; neither nginx nor Go ends threads.
func CPUTime(proc fs.FS, pid int) (sum time.Duration, err error) {
	threads, err := fs.Glob(proc, fmt.Sprintf("%d/task/*", pid))
	if err != nil || len(threads) == 0 {
		return 0, fmt.Errorf("process %d has no threads: it has ended", pid)
	}
	for _, thread := range threads {
		ran, err := readNumbers(proc, thread+"/schedstat") // nanoseconds; stat only has hundredths of a second
		if err != nil {
			return 0, fmt.Errorf("reading the processor time of process %d: %w", pid, err)
		}
		sum += time.Duration(ran[0])
		children, err := readNumbers(proc, thread+"/children")
		if err != nil {
			return 0, fmt.Errorf("reading the children of process %d: %w", pid, err)
		}
		for _, child := range children {
			ran, err := CPUTime(proc, child)
			if err != nil {
				return 0, err
			}
			sum += ran
		}
	}
	return sum, nil
}

// readNumbers reads the numbers in a file.
func readNumbers(files fs.FS, name string) (list []int, err error) {
	text, err := fs.ReadFile(files, name)
	if err != nil {
		return nil, err
	}
	for field := range strings.FieldsSeq(string(text)) {
		n, err := strconv.Atoi(field)
		if err != nil {
			return nil, err
		}
		list = append(list, n)
	}
	return list, nil
}
