//go:build !linux

package http1

// hasWatcher is set on systems with a watcher.
const hasWatcher = false

// watcher does nothing: all connections are read in the background.
type watcher struct{}

func (*watcher) add(*servedConn) (remove func()) { return func() {} }

func (*watcher) close() {}

func (*servedConn) ended() bool { return false }

func (*servedConn) hasInput() bool { return false }
