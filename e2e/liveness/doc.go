// Package liveness tests that a hanging worker does not block its pool, and that a worker that answers late is
// not ejected. It runs whole gateways in the test's process, in virtual time. Their engines step, cache and
// report as vLLM does, and can stop in several ways. It has tests only.
//
// TestAHangingWorkerKeepsNoRequests is the matrix of policies, answers, prefixes, faults, tenants and workers. By
// default it runs a part of it, in which each pair of values of two dimensions occurs. TIERWAY_LIVENESS=all
// selects all cells; `make soak` sets it. -v prints a table of all cells with their processor time.
//
//	go test -tags nomsgpack ./e2e/liveness                         # 27 s of processor time
//	TIERWAY_LIVENESS=all go test -tags nomsgpack ./e2e/liveness    # about 4 minutes
//	TIERWAY_LIVENESS=all go test -tags nomsgpack -v ./e2e/liveness -run 'Hanging/chwbl/whole/unique/frozen'
//
// A cell needs no wall time of its own and has fixed seeds. Figures may still vary by a request or two, because
// goroutines that are ready at the same moment run in any order.
package liveness
