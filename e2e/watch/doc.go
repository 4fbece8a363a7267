// Package watch runs the real binary and reads everything that it tells of itself:
// metrics, logs, exported spans, records of decisions and the admin plane. Its tests
// say that what is told adds up, that no client can make it grow, and that no
// prompt, answer or secret is ever in it.
//
// TIERWAY_SOAK makes the storm last longer than the few seconds that it takes
// without.
package watch
