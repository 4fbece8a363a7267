package routing

import (
	"cmp"
	"time"
)

// transferTime learns how long a transfer of computed prompts takes: tokens and seconds, decayed.
type transferTime struct {
	tokens, took float64
}

const (
	// transferPrior is the time to transfer a token before any sample: 300 KB at 60 GB/s.
	transferPrior = 5e-6
	// transferPriorTokens is the weight of the prior: that of a few long prompts, so that the first transfer, which
	// includes the engines' handshake, does not decide alone.
	transferPriorTokens = 20_000
	// transferDecay is the share that a transfer leaves of the prior and of earlier ones. The last 50 transfers decide:
	// enough to even out waits inside the engine, and few enough to follow a change of the network.
	transferDecay = 0.98
	// transferMost bounds the time that one token can take. A prefill of 1,000 tokens/s takes as long: a larger value
	// would end hand-overs, and with them the samples that could correct it.
	transferMost = 0.001
)

func (t *transferTime) seconds(tokens int64) float64 {
	perToken := transferPrior
	if t.tokens > 0 {
		perToken = min(t.took/t.tokens, transferMost)
	}
	return float64(tokens) * perToken
}

func (t *transferTime) learn(tokens int64, took float64) {
	if t.tokens == 0 {
		t.tokens, t.took = transferPriorTokens, transferPriorTokens*transferPrior
	}
	t.tokens, t.took = transferDecay*t.tokens+float64(tokens), transferDecay*t.took+max(0, took)
}

// learnTransferLocked learns from the first token of a stream whose prompt was handed over.
func (p *Pool) learnTransferLocked(l *Lease, at time.Time) {
	if p.handover != nil && l.handedOver && l.prompt > 0 {
		step := cmp.Or(l.worker.value[tokenTime], timeLimits.prior)
		p.handover.transfer.learn(l.prompt, at.Sub(l.bookedAt).Seconds()-step-l.queueTime.Seconds())
	}
}

// learnPrefillStageLocked learns from the prefill stage of a request. Its one token is no length of an answer.
func (p *Pool) learnPrefillStageLocked(l *Lease, o Result) {
	p.learnCreditLocked(l, o)
	if l.firstAt.IsZero() {
		return
	}
	p.learnRateLocked(l, o)
	p.learnTimesLocked(l, o)
}

// learnDecodeStageLocked learns from the decode stage of a request. Its time to first token and its cached tokens are
// those of a transfer.
func (p *Pool) learnDecodeStageLocked(l *Lease, o Result) {
	p.publishLearnedLocked()
	if !l.stream || l.firstAt.IsZero() {
		return
	}
	if took := o.At.Sub(l.firstAt).Seconds(); o.Err == nil && o.OutputTokens >= minOutput && took > 0 {
		p.learnDecodeLocked(l, o, took)
	}
	p.learnTokenTimeLocked(l, o)
}
