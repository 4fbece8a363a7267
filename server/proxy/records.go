package proxy

import (
	"sync/atomic"

	"tierway/config"
	"tierway/decisions"
)

// records are where the records of ended requests go.
type records struct {
	access *decisions.AccessLog // nil without
	log    *decisions.Log       // the last ones
	file   *decisions.File      // nil without
	keeps  atomic.Bool          // more of a record is kept than its log line
}

// configure puts the bounds of a configuration in force.
func (r *records) configure(f *config.File) {
	r.log.Resize(f.Decisions.Keep)
	r.keeps.Store(f.Decisions.Keep > 0 || r.file != nil)
}

// add writes the record of a request that has ended, which must not change afterwards.
func (r *records) add(d *decisions.Decision) {
	if r.access != nil {
		r.access.Write(d)
	}
	r.log.Add(d)
	if r.file != nil {
		r.file.Add(d)
	}
}
