// Package sim runs the gateway's own queue and pool in virtual time against simulated engines
// and clients. An hour of traffic takes seconds, and the same Config always gives exactly the
// same Result, so that two policies can be compared on the same requests.
//
//	r, err := sim.Run(sim.Config{Engines: …, Policy: …, Queue: …, Loads: …})
//
// # Parts
//
//   - A Load submits requests: single requests at a rate, sessions that continue after a pause, or
//     a recorded trace. Modes are the loads of the reference figures. Clients retry after a
//     rejection as the SDKs do.
//   - The gateway is the code of packages queue and routing, with its learned numbers. Admission
//     replaces the queue by none (Direct) or by one list for all requests (FIFO) for comparisons.
//   - Several gateways share the engines. A load balancer divides the requests among them, and they exchange their
//     loads and journals as the servers do.
//   - An engine prefills prompts one after the other, or in chunks beside the answers. It keeps a
//     prefix cache, and its decode speed decreases with the number of running answers.
//   - With a Handover, engines have roles: one computes the prompt, another one generates the answer. The gateway's
//     code books both.
//   - Peers are policies of other routers, rebuilt from their formulas. They get the state of the engines'
//     caches and queues as those routers do.
//
// # Result
//
// The Result has a Record of each request: when it was submitted, dispatched, answered and ended,
// on which engine, and how many of its tokens were cached. Stats summarizes the records that a
// function selects, such as those of one tenant.
//
// The simulation starts no goroutine and reads no clock: events are processed in order of their time, and
// all random numbers depend on the seed of the Config.
package sim
