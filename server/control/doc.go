// Package control holds the state of a gateway: the configuration in force with its pools, the directory
// of tenants, keys and admins, and the live overrides. It has no HTTP routes; packages proxy and admin
// read and change the state through it.
//
// # Life
//
// New builds a Control, and Begin applies the first configuration. Run keeps pools, directory and
// overrides up to date until its context ends; Close then closes the connections.
//
// # Snapshots
//
// Snapshot returns the configuration in force. A Snapshot is immutable, and a request keeps the one that
// it began with. A reload, a change of the directory and an override are each a Change. Next makes the
// snapshot that follows, with everything that can fail, and changes nothing else, so that a rejected change
// has no effect.
//
// # Parts
//
//	Pools         workers, breakers, queues and learned values, which outlive a reload
//	Member        a worker in a pool, with its breaker, statistics and evidence
//	Database      follows the SQL database; while it is unavailable, the directory in memory is used
//	Stores        database, Redis, usage ledger and limits
//	Identity      tenants, keys and admins of config.yaml and of the database together
//	Bootstrap     the one-time secret that creates the first admin
//	Vocabularies  tokenizers that count prompts near a threshold
//	Recoverer     counts and logs panics in background work, which do not end the process
//
// Two types protect a worker from blame for its requests. Evidence compares failed requests: a single
// request may make any engine fail. Liveness finds a worker that accepts streams and sends nothing while
// its peers answer.
//
// DraftOf and ReplaySetup build the state of a draft for explanations and replays. They change nothing.
//
// Without database and Redis, all state belongs to this process alone.
package control
