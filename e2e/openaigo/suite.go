// Package openaigo is a module of its own that pins openai-go, so that what its
// test suite needs stays out of the gateway's dependencies.
package openaigo

import (
	_ "github.com/openai/openai-go/v3"
	_ "github.com/openai/openai-go/v3/conversations"
	_ "github.com/openai/openai-go/v3/realtime"
	_ "github.com/openai/openai-go/v3/responses"
)
