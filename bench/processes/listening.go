package processes

import (
	"fmt"
	"io/fs"
	"math"
	"net"
	"path"
	"strconv"
	"strings"
)

// ListeningProcess returns the ID of the process that listens on an address of this machine; the lowest ID if several
// share the socket. proc is /proc.
func ListeningProcess(proc fs.FS, addr string) (pid int, err error) {
	_, text, err := net.SplitHostPort(addr)
	if err != nil {
		return 0, err
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return 0, fmt.Errorf("the port of %s: %w", addr, err)
	}
	sockets, err := listeningSockets(proc, port)
	if err != nil {
		return 0, err
	}
	files, err := fs.Glob(proc, "[0-9]*/fd/*")
	if err != nil {
		return 0, err
	}
	first := math.MaxInt
	for _, file := range files {
		target, err := fs.ReadLink(proc, file)
		if err != nil || !sockets[target] {
			continue // another user's, or already closed
		}
		pid, err := strconv.Atoi(path.Dir(path.Dir(file)))
		if err == nil {
			first = min(first, pid)
		}
	}
	if first == math.MaxInt {
		return 0, fmt.Errorf("no process listens on port %d", port)
	}
	return first, nil
}

// listeningSockets returns the sockets that listen on a port, as links of /proc/PID/fd name them.
func listeningSockets(proc fs.FS, port uint64) (map[string]bool, error) {
	const local, state, inode = 1, 3, 9 // columns
	sockets := map[string]bool{}
	for _, name := range []string{"self/net/tcp", "self/net/tcp6"} {
		text, err := fs.ReadFile(proc, name)
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(text)) {
			f := strings.Fields(line)
			if len(f) > inode && f[state] == "0A" && strings.HasSuffix(f[local], fmt.Sprintf(":%04X", port)) {
				sockets["socket:["+f[inode]+"]"] = true
			}
		}
	}
	return sockets, nil
}
