// Package vllm tests the policy kv_aware before two real vLLM engines, with a small random model on the
// CPU. `make e2e-vllm` installs vLLM (about 5 GB) and runs the tests; no other target does.
//
// For each request they compare the cached tokens that the gateway predicted from the engines' events
// with those that the engine reports. TIERWAY_VLLM names the Python interpreter that has vLLM.
package vllm
