package telemetry

// PredictionGauges is how well routing has predicted cached prefixes and times to first token in one
// tier or pool, in total.
type PredictionGauges struct {
	Tier        string             `label:"tier"`
	Events      int64              `metric:"tierway_prefix_predictions_total" with:"source=events" help:"Requests sent to a worker, by the source of the predicted cached part of their prompt: events (the engine's KV-cache events), history (the gateway's own model of the cache), lookup (LMCache's controller), none (nothing is cached)."`
	History     int64              `metric:"tierway_prefix_predictions_total" with:"source=history"`
	None        int64              `metric:"tierway_prefix_predictions_total" with:"source=none"`
	WrongTokens int64              `metric:"tierway_prefix_wrong_tokens_total" help:"Difference of predicted and cached prompt tokens, summed over requests without regard to its sign. Only workers that report cached tokens count."`
	Judged      int64              `metric:"tierway_routes_judged_total" help:"Streams with a predicted time to first token on another worker (policy kv_aware)."`
	Regretted   int64              `metric:"tierway_routes_regretted_total" help:"Judged streams whose real time to first token is at least 25 % above the prediction for another worker. Errors of that prediction count too: the share of better choices is lower."`
	Lookups     *LookupPredictions // nil without look-ups
	Workers     []CreditGauges
}

// CreditGauges is the credit of one worker's predictions.
type CreditGauges struct {
	Worker  string        `label:"worker"`
	Events  float64       `metric:"tierway_worker_prefix_credit_ratio" with:"source=events" help:"Recent share of predicted cached tokens that the worker really had, by source of the prediction (events, history, lookup), 0 to 1. Cached tokens that events should have shown, but did not, count as wrong predictions. If the ratio of events or lookup is below 0.5, the history predicts for that worker."`
	History float64       `metric:"tierway_worker_prefix_credit_ratio" with:"source=history"`
	Lookup  *LookupCredit // nil without look-ups
}

// LookupPredictions are the predictions by look-ups in LMCache's controller.
type LookupPredictions struct {
	Total int64 `metric:"tierway_prefix_predictions_total" with:"source=lookup"`
}

// LookupCredit is the credit of the look-ups in LMCache's controller for one worker.
type LookupCredit struct {
	Credit float64 `metric:"tierway_worker_prefix_credit_ratio" with:"source=lookup"`
}
