package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"tierway/config"
	"tierway/routing"
	"tierway/sim"
	"tierway/sim/comparison"
	"tierway/workers"
)

// The words of --handover and of --roles.
var (
	handovers = []string{config.HandoverNIXL, config.HandoverP2PNCCL, config.HandoverShared, config.HandoverSGLang}
	roles     = []string{workers.RolePrefill, workers.RoleDecode, workers.RoleBoth}
)

// setRoles sets the hand-over of a comparison and the stages of its engines.
func (f *simulateFlags) setRoles(c *cobra.Command, to *comparison.Config) error {
	if !c.Flags().Changed("handover") {
		return f.checkNoRoles(c, to.Policies)
	}
	switch at := slices.IndexFunc(to.Policies, comparison.Policy.Foreign); {
	case !slices.Contains(handovers, f.handover):
		return fmt.Errorf("--handover %q: write one of %s", f.handover, strings.Join(handovers, ", "))
	case at >= 0:
		return fmt.Errorf("--handover %s: policy %q of another router has no roles: "+
			"write --policies with policies of this gateway, such as kv_aware,kv_aware+whole", f.handover, to.Policies[at].Name)
	case f.direct > 0:
		return fmt.Errorf("--direct %v: requests past the gateway have no hand-over: remove --direct or --handover", f.direct)
	case !(f.transferRate >= 1 && f.transferRate <= 1e9):
		return fmt.Errorf("--transfer-rate %v: write tokens per second, from 1 to 1e9", f.transferRate)
	case len(f.roles) == 0:
		return fmt.Errorf("--roles: write one or more of %s", strings.Join(roles, ", "))
	case len(f.roles) > f.engines:
		return fmt.Errorf("--roles has %d values for --engines %d: write at most one for each engine", len(f.roles),
			f.engines)
	}
	to.Handover = &sim.Handover{BothAtOnce: f.handover == config.HandoverSGLang, Rate: f.transferRate}
	if err := f.setStages(to.Engines); err != nil {
		return err
	}
	for _, p := range to.Policies {
		if option := p.ThresholdOption(); option != "" && !slices.ContainsFunc(to.Engines, hasChoice) {
			return fmt.Errorf("--policies: policy %q: %s has no effect with --handover %s, because the role of the selected "+
				"engine decides: remove it", p.Name, option, f.handover)
		}
	}
	return nil
}

// hasChoice reports whether the engine can generate answers from its own prompts and from those of other engines.
func hasChoice(e sim.Engine) bool {
	const both = routing.StageWhole | routing.StageDecode
	return e.Stages&both == both
}

// checkNoRoles rejects flags and options that have no effect without a hand-over.
func (f *simulateFlags) checkNoRoles(c *cobra.Command, policies []comparison.Policy) error {
	for _, name := range []string{"roles", "transfer-rate"} {
		if c.Flags().Changed(name) {
			return fmt.Errorf("--%s has no effect without --handover: remove it, or add --handover nixl", name)
		}
	}
	for _, p := range policies {
		if option := p.StageOption(); option != "" {
			return fmt.Errorf("--policies: policy %q: %s has no effect without --handover: remove it, or add --handover nixl",
				p.Name, option)
		}
	}
	return nil
}

// setStages gives the engines what their roles serve.
func (f *simulateFlags) setStages(engines []sim.Engine) error {
	pool := config.Pool{Handover: f.handover}
	var prefills, decodes []int
	answers := false
	for i := range engines {
		role := strings.TrimSpace(f.roles[i%len(f.roles)])
		if !slices.Contains(roles, role) {
			return fmt.Errorf("--roles %q: write %s", role, strings.Join(roles, ", "))
		}
		stages := pool.Stages(&workers.Spec{Config: workers.Config{Role: role}})
		engines[i].Stages = stages
		answers = answers || stages.Answer()
		if stages&routing.StagePrefill != 0 {
			prefills = append(prefills, i)
		}
		if stages&routing.StageDecode != 0 {
			decodes = append(decodes, i)
		}
	}
	given := strings.Join(f.roles, ",")
	switch {
	case !answers:
		return fmt.Errorf("--roles %s: no engine generates answers: add decode, such as --roles prefill,decode", given)
	case len(prefills) == 0, len(decodes) == 0, len(engines) == 1:
		return fmt.Errorf("--roles %s: with --handover %s and --engines %d no engine can compute prompts for another one: "+
			"write --roles prefill,decode, or remove --handover", given, f.handover, len(engines))
	}
	return nil
}

// printRoles prints a line above the table if the engines have roles, and returns the roles.
func (f *simulateFlags) printRoles(out io.Writer, c comparison.Config) (all []string) {
	if c.Handover == nil {
		return nil
	}
	count := map[string]int{}
	for i := range c.Engines {
		role := sim.RoleOf(c.Engines[i].Stages)
		if count[role]++; count[role] == 1 {
			all = append(all, role)
		}
	}
	var texts []string
	for _, role := range all {
		texts = append(texts, fmt.Sprintf("%d %s", count[role], role))
	}
	fmt.Fprintf(out, "hand-over %s, engines: %s\n\n", f.handover, strings.Join(texts, ", "))
	return all
}
