// Package pairing decides how requests are repeated on two tiers to learn which answers are right.
//
// A sampled request is repeated on the first and on the last tier while both have room. A judge reads
// the two answers, and its verdict gives one label for each tier. Answers of both tiers to one request
// are paired: their difference does not depend on how hard the request is.
//
// The package keeps the samples within bounds, decides when a tier has room, and reads and writes what
// is exchanged with tiers and judges. It has no clock and sends nothing.
package pairing
