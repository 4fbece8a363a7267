// Package core measures what the gateway decides a request by, without the
// network: parsing, classification, the prompt's chain, picking and booking.
// `make bench-core` prints it.
package core
