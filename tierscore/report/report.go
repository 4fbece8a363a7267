// Package report makes the report that operators read: the quality and the cost of each share of the large tier, by the
// labels so far, as values and as a picture.
package report

import (
	"fmt"
	"io"

	"tierway/tenants"
	"tierway/tierscore"
	"tierway/tierscore/training"
)

// Report is the quality of the tiers by the labels so far, and their cost.
type Report struct {
	training.TierReport
	SmallTier string          `json:"small_tier"`
	LargeTier string          `json:"large_tier"`
	Unused    training.Unused `json:"unused" doc:"Lines that were read and not used."`
	Money     *Money          `json:"money,omitempty" doc:"Absent: the tiers have no prices."`
}

// File is a file that is read once. Errors have its name.
type File struct {
	Name string
	In   io.Reader
}

// Input is what a report is made of.
type Input struct {
	Features, Labels []File
	Tiers            training.Tiers
	Model            *tierscore.Model // may be nil
	EvaluateFeedback bool             // see [training.Labels]
}

// Read returns the report of lines of features and labels, without Money. pick(n) returns a random number from 0 to
// n − 1. An error of a line names the file and the line. See [training.Data.TierReport].
func Read(in Input, pick func(n int) int) (*Report, error) {
	known, data := training.NewLabels(in.Tiers), training.Data{}
	known.EvaluateFeedback = in.EvaluateFeedback
	for _, f := range in.Labels {
		if err := known.Read(f.Name, f.In); err != nil {
			return nil, err
		}
	}
	for _, f := range in.Features {
		if err := data.ReadFeatures(f.Name, f.In, known); err != nil {
			return nil, err
		}
	}
	data.Join(known)
	if err := data.CheckUnique(); err != nil {
		return nil, err
	}
	r, err := data.TierReport(in.Model, pick)
	if err != nil && known.OtherTier > 0 {
		return nil, fmt.Errorf("%w; %d labels are of other tiers than %q and %q", err, known.OtherTier, in.Tiers.Small,
			in.Tiers.Large)
	}
	if err != nil {
		return nil, err
	}
	return &Report{TierReport: *r, SmallTier: in.Tiers.Small, LargeTier: in.Tiers.Large,
		Unused: data.Unused(known)}, nil
}

// Money is what 1,000 requests cost, on the assumption that a request has the same tokens at either tier, whatever its
// score.
type Money struct {
	PromptTokens int64        `json:"prompt_tokens" doc:"Tokens of the prompt of a request: the assumption, or the mean of the ledger."`
	OutputTokens int64        `json:"output_tokens" doc:"Tokens of the answer of a request."`
	Points       []MoneyPoint `json:"points" nullable:"false" doc:"From 0 to 100 % in steps of 10 %."`
}

// MoneyPoint is the cost of 1,000 requests, of which a share goes to the large tier.
type MoneyPoint struct {
	Share float64       `json:"share" doc:"Share of requests at the large tier, 0 to 1."`
	Money tenants.Money `json:"money" doc:"Cost of 1,000 requests in currency units."`
}

// steps is the number of steps of the share of requests at the large tier.
const steps = 10

// NewMoney returns the cost of requests with these tokens each, at the prices of two tiers; nil if both are free.
func NewMoney(promptTokens, outputTokens int64, small, large tenants.Price) *Money {
	low, high := small.Cost(1000*promptTokens, 0, 1000*outputTokens), large.Cost(1000*promptTokens, 0, 1000*outputTokens)
	if low == 0 && high == 0 {
		return nil
	}
	m := &Money{PromptTokens: promptTokens, OutputTokens: outputTokens}
	for step := range steps + 1 {
		m.Points = append(m.Points, MoneyPoint{float64(step) / steps, low + (high-low)*tenants.Money(step)/steps})
	}
	return m
}
