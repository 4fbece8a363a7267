// Package backends runs the real servers that tests need: redis-server, PostgreSQL, nginx, HAProxy
// and a small TCP balancer.
//
// [Redis] and [Postgres] start a server for one test, which may kill, suspend and restart it. A
// test that only needs a database calls [Database]; its package calls [Main] from TestMain.
// [NewBalancer] starts a balancer in front of gateways. [Nginx] and [HAProxy] start these proxies
// with the files of deploy/.
//
// Each server listens on its own port of the loopback interface and keeps its files in a temporary
// folder. It ends with its test, or with the test process if the process dies first. A test fails if
// its server is not installed; `make deps` installs it.
package backends
