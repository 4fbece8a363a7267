package routing

import "time"

const (
	// longestMemory is the number of answers after which the longest answer has lost two thirds of its excess. A
	// length that occurs once in 20 answers is then still known.
	longestMemory = 128
	// longestPrior is the output in tokens of the longest answer before any is known: the largest max_tokens that
	// many clients send.
	longestPrior = 4096
	// longestGrowth bounds the ratio of a new longest time to the one before, so that an answer which an engine
	// delayed does not hide the next delay.
	longestGrowth = 4
)

// longestAnswer learns the length and the time of the longest recent answers.
type longestAnswer struct {
	tokens  float64 // output of the longest answer of any kind; 0 before the first
	seconds float64 // time of the longest whole answer; 0 before the first
}

func (l *longestAnswer) learnTokens(tokens int64) {
	l.tokens = max(float64(tokens), l.tokens-(l.tokens-float64(tokens))/longestMemory)
}

// learnTime adds the time of an answer that was not a stream.
func (l *longestAnswer) learnTime(took time.Duration) {
	s := took.Seconds()
	if l.seconds > 0 {
		s = min(s, longestGrowth*max(l.seconds, overdueFloor.Seconds()))
	}
	l.seconds = max(s, l.seconds-(l.seconds-s)/longestMemory)
}

// longestTime returns the longest expected time of a whole answer of at most bound tokens; 0 is no bound. tokenTime is
// in seconds per token.
func (l *longestAnswer) longestTime(bound int64, tokenTime float64) time.Duration {
	maxTokens := int64(longestPrior)
	if l.tokens > 0 {
		maxTokens = int64(l.tokens)
	}
	return seconds(max(l.seconds, float64(atMost(bound, maxTokens))*tokenTime))
}
