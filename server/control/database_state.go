package control

import "sync/atomic"

// databaseState is what the gateway can do with the SQL database.
type databaseState int32

const (
	databaseOK       databaseState = iota // reads and writes
	DatabaseAway                          // neither
	DatabaseReadOnly                      // reads only, for example because the disk is full
)

// String names the state as GET /admin/status shows it.
func (s databaseState) String() string { return [...]string{"ok", "away", "read_only"}[s] }

// databaseFlag is a databaseState for concurrent use.
type databaseFlag struct{ v atomic.Int32 }

// Load returns the state.
func (f *databaseFlag) Load() databaseState { return databaseState(f.v.Load()) }

// Swap sets the state and returns the one before.
func (f *databaseFlag) Swap(s databaseState) databaseState { return databaseState(f.v.Swap(int32(s))) }
