package telemetry

// TokenGauges is what is known of the tokens of prompts in one tier or pool whose policy uses KV-cache
// events. Totals count since the policy was configured.
type TokenGauges struct {
	Tier      string `label:"tier"`
	Known     int64  `metric:"tierway_prompt_lookups_total" with:"result=known" help:"Requests of which the prompt was looked up in the index of KV-cache events, by what was known of its tokens: known (all at once), answered (all, after an engine or the tokenizer was asked), beginning (earlier messages only), unknown (nothing: routing uses its own history)."`
	Answered  int64  `metric:"tierway_prompt_lookups_total" with:"result=answered"`
	Beginning int64  `metric:"tierway_prompt_lookups_total" with:"result=beginning"`
	Unknown   int64  `metric:"tierway_prompt_lookups_total" with:"result=unknown"`

	TimedOut int64 `metric:"tierway_prompt_lookups_late_total" with:"reason=timeout" help:"Look-ups that did not get the tokens of their prompt in time, by reason: timeout (policy.lookup_timeout, or no wait because recent answers took longer), busy (too many prompts waited to be tokenized)."`
	Busy     int64 `metric:"tierway_prompt_lookups_late_total" with:"reason=busy"`

	Asked      int64 `metric:"tierway_prompt_tokenize_requests_total" help:"Requests to engines for the tokens of prompts."`
	Parts      int64 `metric:"tierway_prompt_parts_total" help:"Prompts of which only the new messages were sent to an engine."`
	Failed     int64 `metric:"tierway_prompt_tokenize_failures_total" help:"Prompts for which no engine returned tokens."`
	Mismatched int64 `metric:"tierway_prompt_mismatches_total" help:"Prompts with tokens that contradict those of an earlier message. After one, all prompts are sent as a whole for an hour."`
	Miscounted int64 `metric:"tierway_prompt_miscounts_total" help:"Prompts of which the engine counted other tokens than it returned. Requests of such a form are routed without exact blocks for an hour."`

	Bytes int64 `metric:"tierway_prompt_tokens_bytes" help:"Memory of the known tokens of prompts."`
}
