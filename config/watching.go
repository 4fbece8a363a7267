package config

import "strings"

// Telemetry says where traces go and how finely requests are told apart. Secrets
// that a collector asks for stand in OTEL_EXPORTER_OTLP_HEADERS, never here.
type Telemetry struct {
	OTLP    string  `yaml:"otlp"`     // http or https, without user, password and query; empty: what OTEL_* says
	Sample  float64 `yaml:"sample"`   // 0 to 1
	TraceUI string  `yaml:"trace_ui"` // likewise; empty: no links
	Clients string  `yaml:"clients"`  // parent or link; a checked File has no other
	Tenants int     `yaml:"tenants"`  // with series of their own; the rest is one
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
	Keep     int    `yaml:"keep"`      // in memory; 0: none
	File     string `yaml:"file"`      // JSON lines; empty: none
	MaxSize  Size   `yaml:"max_size"`  // of one file, at least 1 MiB
	MaxFiles int    `yaml:"max_files"` // the one that is written included
}

// The ways in which a client's trace is taken up.
const (
	clientsParent = "parent"
	clientsLink   = "link"
)

func clientsWords() []string { return []string{clientsParent, clientsLink} }

// defaultTelemetry is where traces go where nobody says otherwise.
func defaultTelemetry() Telemetry {
	return Telemetry{
		Sample:  1, // a gateway of models sees hundreds of requests a second, not hundreds of thousands
		Clients: clientsParent,
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
