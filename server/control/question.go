package control

import "tierway/tenants"

// Subject is the caller for which a request is explained.
type Subject struct {
	Caller *tenants.Caller
	Who    string
	Barred error // the error that its requests get; nil: they are served
}

// Question is the input of an explanation besides the request.
type Question struct {
	As    *Subject  // the caller of a request without a key; nil: the key's
	Under *Snapshot // of a draft; nil: the configuration in force
	Rand  *uint64   // the random number by which a worker is picked; nil: a new one
}
