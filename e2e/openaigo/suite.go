// Package openaigo is a separate module that pins openai-go, so that the dependencies of its test
// suite are not dependencies of the gateway.
package openaigo

import (
	_ "github.com/openai/openai-go/v3"
	_ "github.com/openai/openai-go/v3/conversations"
	_ "github.com/openai/openai-go/v3/realtime"
	_ "github.com/openai/openai-go/v3/responses"
)
