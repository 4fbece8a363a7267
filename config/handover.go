package config

import (
	"cmp"
	"time"

	"tierway/routing"
	"tierway/workers"
)

// Hand-overs of a tier or pool.
const (
	HandoverNIXL    = "nixl"     // vLLM's NixlConnector
	HandoverP2PNCCL = "p2p_nccl" // vLLM's P2pNcclConnector
	HandoverShared  = "shared"   // a store of the cache that the engines share
	HandoverSGLang  = "sglang"   // SGLang's transfer, with all of its backends
)

// Defaults with a hand-over.
const (
	defaultHandoverLease = 30 * time.Second // vLLM's kv_lease_duration
	defaultBootstrapPort = 8998             // SGLang's --disaggregation-bootstrap-port
)

// resolveHandover sets the defaults of a section with a hand-over, except for its workers. Its policy is resolved.
func (c *PoolConfig) resolveHandover() {
	c.PrefillPolicy, c.UncachedThreshold = policyCopy(c.PrefillPolicy), copyOf(c.UncachedThreshold)
	if c.Handover == "" {
		return
	}
	if c.PrefillPolicy.Name == "" {
		c.PrefillPolicy = policyCopy(c.Policy)
	}
	c.HandoverLease = cmp.Or(c.HandoverLease, defaultHandoverLease)
}

// resolveRole sets the role and port of a worker in a tier or pool with a hand-over.
func (c *PoolConfig) resolveRole(w *workers.Config) {
	if c.Handover == "" {
		return
	}
	w.Role = cmp.Or(w.Role, workers.RoleBoth)
	if c.Handover == HandoverSGLang && w.Role == workers.RolePrefill {
		w.BootstrapPort = cmp.Or(w.BootstrapPort, defaultBootstrapPort)
	}
}

// isSymmetric reports whether the engines of a hand-over serve both stages and whole requests.
func isSymmetric(handover string) bool { return handover == HandoverNIXL || handover == HandoverShared }

// symmetric reports whether the section's engines serve both stages and whole requests.
func (c *PoolConfig) symmetric() bool { return isSymmetric(c.Handover) }

// Stages returns the parts of a request that a worker of the pool can serve; 0 without a hand-over.
func (p *Pool) Stages(w *workers.Spec) routing.Stages { return stagesOf(p.Handover, w.Role) }

// stagesOf returns what a worker of a role can serve with a hand-over. An engine that is started for P2P NCCL or
// for SGLang's transfer serves one stage only, and one without serves whole requests only.
func stagesOf(handover, role string) routing.Stages {
	symmetric := isSymmetric(handover)
	switch {
	case handover == "":
		return 0
	case role == workers.RolePrefill:
		return routing.StagePrefill
	case role == workers.RoleDecode && symmetric:
		return routing.StageWhole | routing.StageDecode
	case role == workers.RoleDecode:
		return routing.StageDecode
	case symmetric:
		return routing.StageWhole | routing.StagePrefill | routing.StageDecode
	}
	return routing.StageWhole
}
