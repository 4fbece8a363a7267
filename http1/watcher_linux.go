package http1

import (
	"errors"
	"sync"
	"syscall"
)

// hasWatcher is set on systems with a watcher.
const hasWatcher = true

// watcher notices clients that close their connection while a request is in progress, by one epoll instance for all
// connections of a server. Without it, each request would need a goroutine that waits in a read, and two switches
// between threads. The zero value is ready; it opens at its first connection.
type watcher struct {
	mu    sync.Mutex
	epoll int // 0: not open
	wake  [2]int
	last  uint64
	conns map[uint64]*servedConn
}

// leaving are the events after a close by the client. They are edge-triggered (1<<31): each event is reported once.
const leaving = syscall.EPOLLRDHUP | 1<<31

// openLocked starts to wait for events. Event 0 stops the watcher.
func (w *watcher) openLocked() error {
	epoll, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	if err != nil {
		return err
	}
	if err := syscall.Pipe2(w.wake[:], syscall.O_CLOEXEC|syscall.O_NONBLOCK); err != nil {
		return errors.Join(err, syscall.Close(epoll))
	}
	event := syscall.EpollEvent{Events: syscall.EPOLLIN}
	if err := syscall.EpollCtl(epoll, syscall.EPOLL_CTL_ADD, w.wake[0], &event); err != nil {
		return errors.Join(err, syscall.Close(epoll), syscall.Close(w.wake[0]), syscall.Close(w.wake[1]))
	}
	w.epoll, w.conns = epoll, map[uint64]*servedConn{}
	go w.run(epoll)
	return nil
}

// close ends the goroutine of the watcher, which closes the descriptors.
func (w *watcher) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.epoll > 0 {
		_, _ = syscall.Write(w.wake[1], []byte{0}) // the pipe is empty
	}
}

// run cancels the requests of clients that leave, until close.
func (w *watcher) run(epoll int) {
	events := make([]syscall.EpollEvent, 64)
	for {
		n, err := syscall.EpollWait(epoll, events, -1)
		if err != nil && !errors.Is(err, syscall.EINTR) {
			w.closeDescriptors()
			return
		}
		for _, e := range events[:max(n, 0)] {
			id := uint64(uint32(e.Fd)) | uint64(uint32(e.Pad))<<32
			if id == 0 {
				w.closeDescriptors()
				return
			}
			w.mu.Lock()
			c := w.conns[id]
			w.mu.Unlock()
			if c != nil {
				c.clientLeft.Store(true)
				c.cancelIfLeft()
			}
		}
	}
}

// closeDescriptors ends the watch of all connections.
func (w *watcher) closeDescriptors() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, fd := range []int{w.epoll, w.wake[0], w.wake[1]} {
		_ = syscall.Close(fd)
	}
	w.epoll = -1
}

// add watches a connection until remove is called, which may be called again. A connection that cannot be watched is
// read in the background.
func (w *watcher) add(c *servedConn) (remove func()) {
	if c.raw == nil {
		return func() {}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.epoll < 0 || w.epoll == 0 && w.openLocked() != nil {
		c.raw = nil
		return func() {}
	}
	w.last++
	id := w.last
	event := syscall.EpollEvent{Events: leaving, Fd: int32(uint32(id)), Pad: int32(uint32(id >> 32))}
	failed := errors.New("the connection is closed")
	err := c.raw.Control(func(fd uintptr) { failed = syscall.EpollCtl(w.epoll, syscall.EPOLL_CTL_ADD, int(fd), &event) })
	if err != nil || failed != nil {
		c.raw = nil
		return func() {}
	}
	w.conns[id] = c
	return sync.OnceFunc(func() { w.remove(id, c) })
}

// remove ends the watch of a connection.
func (w *watcher) remove(id uint64, c *servedConn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.conns, id)
	if w.epoll < 0 {
		return
	}
	// The kernel ends the watch of a closed one.
	_ = c.raw.Control(func(fd uintptr) { _ = syscall.EpollCtl(w.epoll, syscall.EPOLL_CTL_DEL, int(fd), nil) })
}

// ended reports whether the client has closed its side, and everything before that was read.
func (c *servedConn) ended() (ended bool) {
	var one [1]byte
	err := c.raw.Control(func(fd uintptr) {
		n, _, err := syscall.Recvfrom(int(fd), one[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		ended = n == 0 && err == nil || err != nil && !errors.Is(err, syscall.EAGAIN)
	})
	return err != nil || ended
}

// hasInput reports whether bytes have arrived that were not read.
func (c *servedConn) hasInput() (arrived bool) {
	if c.direct == nil {
		return false
	}
	var one [1]byte
	err := c.direct.Control(func(fd uintptr) {
		n, _, err := syscall.Recvfrom(int(fd), one[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		arrived = n > 0 && err == nil
	})
	return err == nil && arrived
}
