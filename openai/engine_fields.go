package openai

// EngineFields are the fields of a request's body that let its sender name other hosts
// or place the request inside an engine: vLLM's and SGLang's transfers of caches and
// data-parallel ranks, and vLLM's arguments to its plugins.
var EngineFields = [...]string{
	"kv_transfer_params", "ec_transfer_params", "vllm_xargs",
	"bootstrap_host", "bootstrap_port", "bootstrap_room", "bootstrap_pair_key",
	"data_parallel_rank", "routed_dp_rank", "disagg_prefill_dp_rank",
}
