package server

import (
	"encoding/json"
	"time"

	"tierway/config"
	"tierway/decisions"
	"tierway/replay"
	"tierway/server/admin"
	"tierway/store"
	"tierway/tenants"
)

// The parts of the admin API's answers that the tests read.
type (
	pageOf[T any] struct {
		Items []T
		Total int
	}

	rightsShown struct { // tenants.Rights with the names of the API
		Tiers, Models []string
		Priority      tenants.Class
		Default       tenants.Class `json:"default_priority"`
	}
	tenantShown struct {
		rightsShown
		Name         string
		Disabled     bool
		Weight, Keys int
		Limits       tenants.Limits
		FromConfig   bool `json:"from_config"`
		Now          *struct {
			Inflight   int64
			Day, Month struct {
				Tokens int64
				Money  json.Number
			}
		}
	}
	tenantChanged struct {
		Tenant   tenantShown
		Key      *keyShown
		Secret   string
		Warnings []string
	}
	keyShown struct {
		rightsShown
		ID, Tenant, Name, State string
		Limits                  tenants.Limits
		Version                 int64
		ExpiresAt               *time.Time `json:"expires_at"`
		CreatedBy               string     `json:"created_by"`
		ReplacedBy              string     `json:"replaced_by"`
		FromConfig              bool       `json:"from_config"`
	}
	keyChanged struct {
		Key      keyShown
		Secret   string
		Replaced *keyShown
		Warnings []string
	}
	adminShown struct{ ID, Name, Role string }
	adminMade  struct {
		Admin  adminShown
		Secret string
	}

	configShown struct {
		Effective     json.RawMessage
		Hash          string
		Generation    int64
		RestartNeeded []string `json:"restart_needed"`
	}
	validationShown struct {
		Valid    bool
		Problems []admin.ProblemView
	}
	statusShown struct {
		Generation int64
		SQL        struct {
			State, Kind string
			ReadAt      *time.Time `json:"read_at"`
		}
		Redis struct {
			State    string
			Gateways int
		}
		Ledger *struct{}
	}
	usageShown struct{ Items []store.UsageRow }

	decisionShown struct {
		Seq      int64
		TraceURL string `json:"trace_url"`
		decisions.Decision
	}
	decisionList struct {
		Items      []decisionShown
		Next       *string `json:"next_cursor"`
		Kept, Keep int
	}
	replayShown struct {
		replay.Report
		Changes []config.Change
	}
)

// The parts of answers about workers, tiers and queues that the tests read.
type (
	workerShown struct {
		Name, Pool, Model, State string
		Since                    string
		Tier                     bool
		Models                   []string
		Weight, Bound, Inflight  int
		BoundLearned             bool  `json:"bound_learned"`
		Tokens                   int64 `json:"tokens_inflight"`
		Saturated                bool
		Stale                    bool `json:"metrics_stale"`
		Weights                  struct {
			Effective, File int
			Override        *store.Override
			Version         int64
		}
		Drain *struct {
			Since           time.Time
			Inflight        int
			InflightAtStart *int `json:"inflight_at_start"`
			Deadline        *time.Time
			Overdue         bool
		}
		Totals struct {
			Requests struct{ OK, Error int64 }
			Tokens   struct{ Output int64 }
		}
		Latency struct {
			Count int64
			P95   float64 `json:"p95_ms"`
			P99   float64 `json:"p99_ms"`
		}
		LastSelected *time.Time `json:"last_selected"`
		Distribution struct{ Now, Expected float64 }
		Breaker      struct {
			State, Since, Cause, Until string
			Requests                   int
		}
		Learned struct{ ID string }
		Failure *struct {
			At        time.Time
			Status    int
			Message   string
			RequestID string `json:"request_id"`
		} `json:"last_failure"`
	}
	workersShown struct {
		Workers []workerShown
		Pools   map[string]struct {
			Policy string
			Scale  struct{ Count int64 } `json:"prompt_scale"`
			Output struct{ Count int64 } `json:"output_tokens"`
		}
	}
	workerChanged struct {
		DryRun   bool `json:"dry_run"`
		Worker   workerShown
		Expected map[string]float64
		Warnings []string
	}
	drainBegun struct {
		State           string
		Inflight        int
		InflightAtStart int `json:"inflight_at_start"`
		Deadline        time.Time
		Warnings        []string
	}
	tierShown struct {
		Model   string
		Workers map[string]int
		Serves  []string
		Queued  int
	}
	queueShown struct {
		Name           string
		Tier           bool
		Depth, Matched int
		MaxDepth       int `json:"max_depth"`
		Bytes          int64
		MaxBytes       int64 `json:"max_bytes"`
		Throughput     struct {
			PerSecond float64 `json:"per_second"`
			Sure      bool
		}
		Drain   *float64 `json:"drain_ms"`
		Classes map[string]struct {
			Depth                          int
			Oldest                         float64 `json:"oldest_ms"`
			MaxWait                        float64 `json:"max_wait_ms"`
			Tokens                         int64
			Drain                          *float64 `json:"drain_ms"`
			Entered, Dispatched, Abandoned int64
			Expired                        int64 `json:"expired"`
			Shed                           map[string]int64
		}
		Waiting []struct {
			Position      int
			RequestID     string `json:"request_id"`
			Tenant, Class string
			Waited        float64 `json:"waited_ms"`
			Tokens        int64
			Estimated     *float64 `json:"estimated_ms"`
		}
	}
)
