package chaos

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"tierway/e2e/rig"
	"tierway/engines"
)

// limitDescriptors limits the gateway to its open descriptors plus more.
func (r *chaosRig) limitDescriptors(t *testing.T, more int) {
	t.Helper()
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", r.PID()))
	if err != nil {
		t.Fatal(err)
	}
	limit := syscall.Rlimit{Cur: uint64(len(open) + more), Max: uint64(len(open) + more)}
	if _, _, errno := syscall.RawSyscall6(syscall.SYS_PRLIMIT64, uintptr(r.PID()), syscall.RLIMIT_NOFILE,
		uintptr(unsafe.Pointer(&limit)), 0, 0, 0); errno != 0 {
		t.Fatal(errno)
	}
}

// TestSmokeExhaustedDescriptorsAreTheGatewaysFault: if clients hold all file descriptors, a request is
// rejected with 503, and log and metrics name the cause. Workers are not blamed: the next request
// after the clients disconnect is served.
func TestSmokeExhaustedDescriptorsAreTheGatewaysFault(t *testing.T) {
	rig.RequireBinary(t)
	t.Parallel()
	r := newRig(t, 2, rig.Settings{"health": `{ path: /health, interval: 30s, timeout: 30s, down_after: 1 }`}, engines.Config{})
	r.WaitUntilReady()
	first := r.dial()
	r.Client.CloseIdleConnections()
	r.limitDescriptors(t, 16) // also for connections that the gateway opens later, such as those of health checks
	var clients []net.Conn
	for range 40 {
		c, err := net.Dial("tcp", r.DataAddr) // the kernel accepts it even if the gateway cannot
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		clients = append(clients, c)
	}
	stored := strings.Replace(chat.body, "{", `{"store":true,`, 1) // such a request needs a new connection
	ask := head + fmt.Sprintf("Content-Length: %d\r\n\r\n", len(stored)) + stored
	var refused rig.Reply
	rig.Eventually(t, func() error {
		first.send(ask)
		if refused = first.answer(); refused.Status == http.StatusOK {
			return fmt.Errorf("the gateway still has free descriptors")
		}
		return nil
	})
	checkError(t, "without a descriptor", refused, http.StatusServiceUnavailable, "overloaded")
	if refused.Header.Get("Retry-After") == "" {
		t.Error("the response has no Retry-After")
	}
	for _, c := range clients {
		c.Close()
	}
	rig.Eventually(t, func() error {
		first.send(ask)
		if got := first.answer(); got.Status != http.StatusOK {
			return fmt.Errorf("afterwards: %d %s", got.Status, got.Body)
		}
		return nil
	})
	m, err := r.Metrics()
	if err != nil {
		t.Fatal(err)
	}
	if n := m.Sum("tierway_worker_breaker"); n != 0 {
		t.Errorf("breakers stand at %v in all", n)
	}
	for _, operation := range []string{"accept", "connect"} {
		if m.Sum("tierway_fd_exhausted_total", `operation="`+operation+`"`) == 0 {
			t.Errorf("no %s is counted", operation)
		}
	}
	if log := r.Log(); !strings.Contains(log, `"level":"WARN","msg":"a connection failed: no file descriptor is free"`) ||
		strings.Contains(log, "worker is down") {
		t.Errorf("the log is %s", log)
	}
}
