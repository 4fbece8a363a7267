// Package control is the state of a gateway: the configuration in force with its pools, workers, breakers
// and queues, the directory of tenants, keys and admins, and the live overrides. It has no HTTP routes.
//
// New builds a Control and Begin applies the first configuration. Run keeps pools, directory and
// overrides up to date until its context ends; Close then closes the connections.
//
// Snapshot returns the configuration in force. A Snapshot is immutable, and a request keeps the one that
// it began with. Reload replaces it: everything that can fail is built first, and then one pointer is
// stored, so that a rejected configuration changes nothing. Pools keeps the workers, breakers, queues and
// learned values that exist before and after.
//
// Database follows the SQL database. While it is unavailable, the directory in memory is used. Overrides
// change weights and drain workers without a new configuration.
//
// A panic in background work is counted and logged by Recoverer, and does not end the process. Without
// database and Redis, the state is that of this process alone.
package control
