// Package vllm tests Tierway before two real vLLM engines, with a small random model on the CPU: the policy kv_aware,
// engines that stop, and hand-overs between a prefill engine and a decode engine. `make e2e-vllm` installs vLLM
// (about 5 GB) and runs the tests; no other target does.
//
// With kv_aware, they compare for each request the cached tokens that the gateway predicted from the engines' events
// with those that the engine reports. TIERWAY_VLLM names the Python interpreter that has vLLM.
package vllm
