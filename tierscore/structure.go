package tierscore

import "math/bits"

// structureBuckets are presence features of counts. Each count has a run of buckets, of which a value sets all up to
// its level. A sum of their weights is then a step function, and regularisation smooths the steps. The last buckets are
// those of the kinds of questions, of which one is set.
const structureBuckets = 136 + questions

// run is the buckets of one count.
type run struct {
	levels int
	level  func(c *counts) int
}

var runs = [...]run{
	{32, func(c *counts) int { return halfOctave(c.bytes()) }},
	{12, func(c *counts) int { return bits.Len32(c.Classes[classLine]) }},
	{8, func(c *counts) int { return bits.Len32(c.Classes[classDigit]) }},
	{8, func(c *counts) int { return bits.Len32(c.Classes[classCode]) }},
	{6, func(c *counts) int { return bits.Len32(c.Classes[classTable]) }},
	{4, func(c *counts) int { return int(min(c.Classes[classQuestion], 4)) }},
	{8, func(c *counts) int { return int(min(c.Choices, 8)) }},
	{8, func(c *counts) int { return bits.Len32(c.Turns) }},
	{1, func(c *counts) int { return int(c.Tools) }},
	{1, func(c *counts) int { return int(c.System) }},
	{8, func(c *counts) int { return c.share(classDigit) }},
	{8, func(c *counts) int { return c.share(classUpper) }},
	{8, func(c *counts) int { return c.share(classPunctuation) }},
	{8, func(c *counts) int { return c.share(classSpace) }},
	{8, func(c *counts) int { return c.share(classForeign) }},
}

// bytes returns the length of the user text.
func (c *counts) bytes() (n uint32) {
	for _, class := range c.Classes {
		n += class
	}
	return n
}

// halfOctave returns 1 + 2·log2(n), rounded down, and 0 for 0: the number of bits of n².
func halfOctave(n uint32) int { return bits.Len64(uint64(n) * uint64(n)) }

// share returns the level of a class's share of the text: each level doubles it, from 1 in 128 on.
func (c *counts) share(class int) int {
	n := uint64(c.bytes())
	if n == 0 {
		return 0
	}
	return bits.Len64(uint64(c.Classes[class]) * 256 / n)
}
