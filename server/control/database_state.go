package control

import "sync/atomic"

// DatabaseState is what the gateway can do with the SQL database.
type DatabaseState int32

const (
	DatabaseOK       DatabaseState = iota // reads and writes
	DatabaseAway                          // neither
	DatabaseReadOnly                      // reads only, for example because the disk is full
)

// String names the state as GET /admin/status shows it.
func (s DatabaseState) String() string { return [...]string{"ok", "away", "read_only"}[s] }

// databaseFlag is a DatabaseState for concurrent use.
type databaseFlag struct{ v atomic.Int32 }

// Load returns the state.
func (f *databaseFlag) Load() DatabaseState { return DatabaseState(f.v.Load()) }

// swap sets the state and returns the one before.
func (f *databaseFlag) swap(s DatabaseState) DatabaseState { return DatabaseState(f.v.Swap(int32(s))) }
