package processes

import (
	"testing"
	"testing/fstest"
)

func TestProcessorTimeIsThatOfAllThreadsAndChildren(t *testing.T) {
	proc := fstest.MapFS{}
	for name, text := range map[string]string{
		"7/task/7/schedstat": "1000 5 6\n", "7/task/7/children": "9 10 ",
		"7/task/8/schedstat": "200 5 6\n", "7/task/8/children": "",
		"9/task/9/schedstat": "30 5 6\n", "9/task/9/children": "",
		"10/task/10/schedstat": "4 5 6\n", "10/task/10/children": "",
		"11/task/11/schedstat": "none\n", "11/task/11/children": "",
	} {
		proc[name] = &fstest.MapFile{Data: []byte(text)}
	}
	if got, err := CPUTime(proc, 7); got != 1234 || err != nil {
		t.Errorf("got %d, %v, want 1234 ns", got, err)
	}
	for _, pid := range []int{11, 12} {
		if _, err := CPUTime(proc, pid); err == nil {
			t.Errorf("process %d has a processor time", pid)
		}
	}
}
