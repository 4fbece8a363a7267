package proxy

import (
	"sync/atomic"

	"tierway/config"
	"tierway/decisions"
	"tierway/spool"
)

// records writes the records of ended requests to their destinations.
type records struct {
	access *decisions.AccessLog             // nil without an access log
	log    *decisions.Log                   // the latest records, in memory
	file   *spool.File[*decisions.Decision] // nil without a file
	keeps  atomic.Bool                      // full records are kept, not only log lines
}

// configure applies the bounds of a configuration.
func (r *records) configure(f *config.File) {
	r.log.Resize(f.Decisions.Keep)
	r.keeps.Store(f.Decisions.Keep > 0 || r.file != nil)
}

// add writes the record of an ended request. d must not change afterwards.
func (r *records) add(d *decisions.Decision) {
	if r.access != nil {
		r.access.Write(d)
	}
	r.log.Add(d)
	if r.file != nil {
		r.file.Add(d)
	}
}
