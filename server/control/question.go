package control

import "tierway/tenants"

// Subject is the caller for which a request is explained.
type Subject struct {
	Caller *tenants.Caller
	Name   string // tenant and key, for the explanation
	Barred error  // the error that rejects its requests; nil: they are served
}

// Question has the inputs of an explanation besides the request.
type Question struct {
	As    *Subject  // replaces the caller of the request's key; nil: the request has its own
	Under *Snapshot // snapshot of a draft; nil: the configuration in force
	Rand  *uint64   // random number for the worker selection; nil: a new one
	Hooks bool      // call the hooks
}
