package config

import "strings"

// Telemetry says where traces go and how finely requests are told apart. Secrets
// that a collector asks for stand in OTEL_EXPORTER_OTLP_HEADERS, never here.
type Telemetry struct {
	OTLP    string  `yaml:"otlp" form:"web" way:"write the collector's address, such as http://127.0.0.1:4318; what it asks for stands in OTEL_EXPORTER_OTLP_HEADERS" reload:"restart" doc:"Where traces go: the address of a collector that speaks OTLP/HTTP, such as http://127.0.0.1:4318, where /v1/traces is added unless it has a path. Empty: OTEL_EXPORTER_OTLP_TRACES_ENDPOINT or OTEL_EXPORTER_OTLP_ENDPOINT, and without these no traces. Without user and password: a collector's key stands in OTEL_EXPORTER_OTLP_HEADERS."`
	Sample  float64 `yaml:"sample" max:"1" doc:"Part of the requests that are traced. One that a known client traces already is traced if the client's is."`
	TraceUI string  `yaml:"trace_ui" form:"web" way:"write where people open Jaeger, such as http://127.0.0.1:16686" doc:"Where people look at traces, such as Jaeger's http://127.0.0.1:16686. Decisions link to it: /trace/ and the trace's id are added."`
	Clients string  `yaml:"clients" enum:"parent,link" reload:"restart" doc:"What the trace of a known client is: 'parent' goes on with it, 'link' starts one of its own that links to it."`
	Tenants int     `yaml:"tenants" max:"1000" zero:"true" doc:"Tenants that metrics name, those with the most requests; all others are one tenant, 'other'."`
}

// TraceURL returns the page of a trace, as Jaeger names it; empty without a
// trace_ui or an id.
func (t Telemetry) TraceURL(id string) string {
	if t.TraceUI == "" || id == "" {
		return ""
	}
	return strings.TrimRight(t.TraceUI, "/") + "/trace/" + id
}

// Decisions says which records of decisions are kept.
type Decisions struct {
	Keep     int    `yaml:"keep" max:"100000" zero:"true" doc:"Records that stay in memory, the newest, for the admin plane. 0: none."`
	File     string `yaml:"file" form:"file" way:"write a path such as decisions.jsonl; a relative one lies beside this file" reload:"restart" doc:"File that every record is added to, as JSON lines. A relative path lies beside this file. Empty: none."`
	MaxSize  Size   `yaml:"max_size" reload:"restart" doc:"Length at which the file is put aside for a new one: at least 1 MiB."`
	MaxFiles int    `yaml:"max_files" min:"1" max:"100" reload:"restart" doc:"Files that are kept, the one that is written included. The oldest goes."`
}

// defaultTelemetry is where traces go where nobody says otherwise.
func defaultTelemetry() Telemetry {
	return Telemetry{
		Sample:  1, // a gateway of models sees hundreds of requests a second, not hundreds of thousands
		Clients: "parent",
		Tenants: 50, // lines that one graph can show; each costs about ten series
	}
}

// defaultDecisions is what is kept where nobody says otherwise.
func defaultDecisions() Decisions {
	return Decisions{
		Keep:     2000,      // minutes of a busy gateway, in about 10 MB
		MaxSize:  100 << 20, // about 50,000 records, and what an editor still opens
		MaxFiles: 5,
	}
}
