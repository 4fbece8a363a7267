package routing

// Stages are the parts of a request that a worker can serve. The zero value serves whole requests only.
type Stages uint8

const (
	// StageWhole means that the worker computes the prompt and generates the answer.
	StageWhole Stages = 1 << iota
	// StagePrefill means that it computes prompts for other workers.
	StagePrefill
	// StageDecode means that it generates answers from a prompt that another worker has computed.
	StageDecode
)

// Handover configures a pool whose workers can compute a prompt for each other (disaggregated serving).
type Handover struct {
	Policy Policy // selects the worker of the prefill stage
	// Threshold is the number of uncached prompt tokens from which another worker computes the prompt. 0: never,
	// AutoThreshold: if the predicted cost is lower.
	Threshold int64
}

// AutoThreshold is the Threshold of a pool that decides by the predicted cost.
const AutoThreshold = -1
