// Package handover measures pools with prefill and decode workers: conversations are sent over HTTP through a whole
// gateway in the test's process to simulated engines, in virtual time. It has tests only.
//
// TIERWAY_TRACE names a file in Mooncake's format, such as its conversation trace; without it, the conversations are
// generated. With TIERWAY_SOAK, the measurements have their full size.
//
// The engines are those of package engines: one prompt at a time, and answers that take twice as long meanwhile.
package handover
