package telemetry

import (
	"testing"

	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
)

func TestNamesAreThoseOfThePinnedConventions(t *testing.T) {
	if SchemaURL != semconv.SchemaURL {
		t.Errorf("the schema is %q, the conventions' %q", SchemaURL, semconv.SchemaURL)
	}
	for ours, theirs := range map[string]string{
		AttrServiceName: string(semconv.ServiceNameKey), AttrServiceVersion: string(semconv.ServiceVersionKey),
		AttrHTTPMethod: string(semconv.HTTPRequestMethodKey), AttrHTTPRoute: string(semconv.HTTPRouteKey),
		AttrHTTPStatus: string(semconv.HTTPResponseStatusCodeKey), AttrErrorType: string(semconv.ErrorTypeKey),
		AttrGenAIOperation: string(semconv.GenAIOperationNameKey), AttrGenAIProvider: string(semconv.GenAIProviderNameKey),
		AttrGenAIModel: string(semconv.GenAIRequestModelKey), AttrGenAIStream: string(semconv.GenAIRequestStreamKey),
		AttrGenAIMaxTokens: string(semconv.GenAIRequestMaxTokensKey), AttrGenAIAnswered: string(semconv.GenAIResponseModelKey),
		AttrGenAIInput: string(semconv.GenAIUsageInputTokensKey), AttrGenAIOutput: string(semconv.GenAIUsageOutputTokensKey),
		AttrGenAICached: string(semconv.GenAIUsageCacheReadInputTokensKey), AttrGenAIFirst: string(semconv.GenAIResponseTimeToFirstChunkKey),
	} {
		if ours != theirs {
			t.Errorf("%q stands for what the conventions call %q", ours, theirs)
		}
	}
}
