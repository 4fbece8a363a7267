// Package loopback gives out the addresses on which the end-to-end tests start servers.
//
// A server that is to be restarted needs an address that stays free in between. A free port of
// 127.0.0.1 does not: other test processes look for free ports at the same time, and an outgoing
// connection may take it. So each test process claims a loopback address for itself ([Host]) and gives
// out its ports once ([Address]). Outgoing connections have the address 127.0.0.1.
package loopback
