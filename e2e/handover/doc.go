// Package handover measures pools with prefill and decode workers, in virtual time. Conversations are sent over HTTP
// through a whole gateway in the test's process to simulated engines. It has tests only.
//
// TIERWAY_TRACE names a file in Mooncake's format, such as its conversation trace. Without it, the conversations are
// generated. With TIERWAY_SOAK, the measurements have their full size.
//
// The engines are those of package engines: each computes one prompt at a time. While an engine computes a prompt, its
// answers take twice as long.
package handover
