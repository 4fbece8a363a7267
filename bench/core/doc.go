// Package core measures the decision about a request without the network: parsing,
// classification, the chain of the prompt's blocks, and the selection and booking of a worker.
// `make bench-core` prints the results. It has tests only.
package core
