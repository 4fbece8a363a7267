package control

import "tierway/tenants"

// Subject is for whom a request is explained.
type Subject struct {
	Caller *tenants.Caller
	Who    string
	Barred error // what its requests are answered; nil: they are served
}

// Question is what an explanation is asked for besides the request.
type Question struct {
	As    *Subject  // who asks, where the request has no key; nil: whoever its key says
	Under *Snapshot // of a draft; nil: the configuration in force
	Rand  *uint64   // the random number that a worker is picked by; nil: a fresh one
}
