package main

import (
	"cmp"
	"fmt"

	"tierway/routing"
)

// reasonWords returns the reason for which a policy chose a worker as a clause; the code itself if it is unknown.
func reasonWords(code string) string { return cmp.Or(reasonTexts[routing.Reason(code)], code) }

var reasonTexts = map[routing.Reason]string{
	routing.ReasonRoundRobin:         "its turn in order",
	routing.ReasonWeightedRoundRobin: "its turn in order",
	routing.ReasonRandom:             "drawn at random",
	routing.ReasonLeastLoad:          "fewest booked tokens per unit of weight",
	routing.ReasonPowerOfTwo:         "the less loaded of two drawn workers",
	routing.ReasonImbalanced:         "least load, because the loads differ too much",
	routing.ReasonKVEvents:           "lowest cost, with a part of the prompt in its cache by the engine's events",
	routing.ReasonKVHistory:          "lowest cost, with a part of the prompt in its cache by the gateway's history",
	routing.ReasonLowestCost:         "lowest cost, with nothing of the prompt in its cache",
	routing.ReasonCacheMatch:         "the largest part of the prompt in its cache, above cache_threshold",
	routing.ReasonCacheMiss:          "no worker has enough of the prompt in its cache, and on_miss selected this one",
	routing.ReasonKVOverlap:          "highest score of overlap, load and health",
	routing.ReasonLMCacheLookup:      "lowest cost, with a part of the prompt in its cache by LMCache's controller",
	routing.ReasonLMCacheOccupancy:   "highest score of keys in LMCache and load",
	routing.ReasonLeastLatency:       "lowest product of average time to the first event and load",
	routing.ReasonLatencyProbe:       "no stream for 10 s, so its average may be out of date",

	routing.ReasonPrefixHome:      "the beginning of the prompt hashes to it",
	routing.ReasonModelHome:       "the name of the model hashes to it",
	routing.ReasonPrefixOverflow:  overflowed,
	routing.ReasonModelOverflow:   overflowed,
	routing.ReasonPrefixSaturated: allOver,
	routing.ReasonModelSaturated:  allOver,
	routing.ReasonSessionHome:     "the session hashes to it",
	routing.ReasonSessionPin:      "it served the session while the session's home took no requests",
	routing.ReasonHeaderHome:      "the value of the header hashes to it",
	routing.ReasonBodyHome:        "the body hashes to it",
}

const (
	overflowed = "the home is over its bound or full, and this is the next suitable worker"
	allOver    = "all workers are over their bounds; this is the home, or the next worker that is not full"
)

// handoverWords returns why a hand-over was decided so as a clause; the code itself if it is unknown.
func handoverWords(code string) string { return cmp.Or(handoverTexts[code], code) }

var handoverTexts = map[string]string{
	routing.HandoverCost:      "the lower predicted cost",
	routing.HandoverThreshold: "by uncached_threshold",
	routing.HandoverWhole:     "one worker must serve both stages of this request",
	routing.HandoverOnlyWay:   "the only way with the decode worker",
	routing.HandoverNoPrefill: "no prefill worker takes the request",
}

// exclusionWords returns why a worker was not selected as a clause; the code itself if it is unknown.
func exclusionWords(code string) string { return cmp.Or(exclusionTexts[code], code) }

var exclusionTexts = map[string]string{
	routing.ExcludedRequests:    "over its bound on requests",
	routing.ExcludedTokens:      "over its bound on booked tokens",
	routing.ExcludedFull:        "full until another of its requests ends",
	routing.ExcludedNotDrawn:    "not among the workers drawn at random",
	routing.ExcludedDown:        "down: health checks fail, or the engine is asleep or paused",
	routing.ExcludedNoWeight:    "drained, or its weight is 0",
	routing.ExcludedRole:        "its role does not serve this stage of the request",
	routing.ExcludedModel:       "does not serve the model",
	routing.ExcludedOtherWorker: "another worker stores the response that the request continues",
	routing.ExcludedTried:       "the request was tried there",
	routing.ExcludedOpen:        "ejected after failures, or its server accepts no connection",
	routing.ExcludedBackoff:     "in backoff after 429, an overload or a refused key",
	routing.ExcludedOverdue:     "its requests are overdue, and another worker is usable",
	routing.ExcludedGroup:       "a group with a lower priority number has a usable worker",
	routing.ExcludedSaturated:   "the engine's metrics show saturation",
	routing.ExcludedRegion:      "a worker of a nearer region takes requests",
	routing.ExcludedSlowStart:   "in slow start, and has its reduced share",
}

// scoreUnit returns the unit of a policy's score of a candidate, and of its terms; "" for a number without a unit.
func scoreUnit(policy string, c *routing.Candidate) string {
	if policy == "kv_aware" || policy == "lmcache_aware" && c.Terms.Get("first_token") > 0 {
		return " s"
	}
	return ""
}

// estimateText returns a learned number with a unit. Without samples it is a prior.
func estimateText(value string, samples int64) string {
	switch samples {
	case 0:
		return value + " (a prior, no samples)"
	case 1:
		return value + " (1 sample)"
	}
	return fmt.Sprintf("%s (%d samples)", value, samples)
}

func learnedText(l *routing.Estimates) string {
	samples := int64(0)
	for i := range l.Workers {
		samples += l.Workers[i].Rate.Count
	}
	return estimateText(fmt.Sprintf("%.3g prompt tokens per estimated token", l.PromptScale.Value), l.PromptScale.Count) +
		", " + estimateText(fmt.Sprintf("%.0f output tokens", l.OutputTokens.Value), l.OutputTokens.Count) +
		", " + estimateText(fmt.Sprintf("prefill of %.0f tokens/s", l.Rate), samples)
}
