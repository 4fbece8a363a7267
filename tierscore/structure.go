package tierscore

import "math/bits"

// structureBuckets are presence features of counts. Each count has a run of buckets, of which a value sets all up to
// its level. A sum of their weights is then a step function, and regularisation smooths the steps. The last buckets are
// those of the kinds of questions, of which one is set.
const structureBuckets = 128 + questions

// run is the buckets of one count.
type run struct {
	levels int
	level  func(c *counts) int
}

var runs = [...]run{
	{32, func(c *counts) int { return halfOctave(c.bytes()) }},
	{12, func(c *counts) int { return bits.Len32(c.Kinds[byteLine]) }},
	{8, func(c *counts) int { return bits.Len32(c.Kinds[byteDigit]) }},
	{8, func(c *counts) int { return bits.Len32(c.Kinds[byteCode]) }},
	{6, func(c *counts) int { return bits.Len32(c.Kinds[byteTable]) }},
	{4, func(c *counts) int { return int(min(c.Kinds[byteQuestion], 4)) }},
	{8, func(c *counts) int { return int(min(c.Choices, 8)) }},
	{8, func(c *counts) int { return bits.Len32(c.Turns) }},
	{1, func(c *counts) int { return int(c.Tools) }},
	{1, func(c *counts) int { return int(c.System) }},
	{8, func(c *counts) int { return c.share(byteDigit) }},
	{8, func(c *counts) int { return c.share(byteUpper) }},
	{8, func(c *counts) int { return c.share(bytePunctuation) }},
	{8, func(c *counts) int { return c.share(byteSpace) }},
	{8, func(c *counts) int { return c.share(byteForeign) }},
}

// bytes returns the length of the user text.
func (c *counts) bytes() (n uint32) {
	for _, bytes := range c.Kinds {
		n += bytes
	}
	return n
}

// halfOctave returns 1 + 2·log2(n), rounded down, and 0 for 0: the number of bits of n².
func halfOctave(n uint32) int { return bits.Len64(uint64(n) * uint64(n)) }

// share returns the level of a kind's share of the text: each level doubles it, from 1 in 256 on.
func (c *counts) share(kind int) int {
	n := uint64(c.bytes())
	if n == 0 {
		return 0
	}
	return bits.Len64(uint64(c.Kinds[kind]) * 256 / n)
}
