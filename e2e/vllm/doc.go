// Package vllm tests Tierway in front of two real vLLM engines, with a small random model on the CPU. It tests the
// policy kv_aware, engines that stop, and hand-overs between a prefill engine and a decode engine. `make e2e-vllm`
// installs vLLM (6 GB) and runs the tests; no other target does.
//
// With kv_aware, the tests compare two numbers for each request. The gateway predicts the cached tokens from the
// engines' events, and the engine reports them. TIERWAY_VLLM names the Python interpreter that has vLLM.
package vllm
