package sdk_test

import (
	"slices"
	"testing"

	"tierway/e2e/gateway"
)

// TestSmokeGoSDK runs the plain cases of openai-go on the demo: chats, streams and errors.
func TestSmokeGoSDK(t *testing.T) {
	t.Parallel()
	p := gateway.Demo(t)
	for _, c := range slices.Concat(goChat(), goErrors()) {
		t.Run(c.name, func(t *testing.T) {
			client, _ := goClient(p)
			c.do(t, t.Context(), client)
		})
	}
}

// TestSmokePythonSDK runs the same with openai for Python.
func TestSmokePythonSDK(t *testing.T) {
	t.Parallel()
	gateway.DependOn(t, "../python")
	checkRan(t, runPython(t, gateway.Demo(t), "test_openai.Chat", "test_openai.Errors"))
}

// TestSmokeNodeSDK runs the same with openai for Node.
func TestSmokeNodeSDK(t *testing.T) {
	t.Parallel()
	gateway.DependOn(t, "../node")
	checkRan(t, runNode(t, gateway.Demo(t), "openai.test.js"))
}

// checkRan fails the test if no test case has run or one was skipped.
func checkRan(t *testing.T, n tally) {
	t.Helper()
	if n.ran == 0 || n.skipped > 0 {
		t.Errorf("%d tests ran, %d were skipped", n.ran, n.skipped)
	}
}
