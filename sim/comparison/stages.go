package comparison

import (
	"fmt"
	"strings"

	"tierway/sim"
)

// Stages is where prompts were computed, and what the engines of each role did.
type Stages struct {
	Remote  float64 `json:"remote"`          // share of the prompts that one engine computed and another one answered
	Prefill Seconds `json:"prefill_seconds"` // of these: from the dispatch until the prompt was computed
	Decode  Seconds `json:"decode_seconds"`  // and from there to the first token
	Token   Seconds `json:"token_seconds"`   // mean time for a token of an answer
	Roles   []Role  `json:"roles"`
}

// Role is the use of the engines with one role, as means from the first request in the figures to the last.
type Role struct {
	Role    string  `json:"role"` // prefill, decode or both; whole without roles
	Engines int     `json:"engines"`
	Busy    float64 `json:"busy"`    // share of the time in which an engine computes prompts
	Answers float64 `json:"answers"` // answers that an engine generates at once
}

// add adds the figures of one seed.
func (s *Stages) add(f *sim.StageFigures, share float64) {
	s.Remote += f.Remote * share
	s.Prefill.add(f.Prefill, share)
	s.Decode.add(f.Decode, share)
	s.Token.add(f.Token, share)
	if s.Roles == nil {
		s.Roles = make([]Role, len(f.Roles))
	}
	for i, r := range f.Roles { // the same ones with each seed
		s.Roles[i].Role, s.Roles[i].Engines = r.Role, r.Engines
		s.Roles[i].Busy += r.Busy * share
		s.Roles[i].Answers += r.Answers * share
	}
}

// stageColumns returns the columns of Stages, with room for all roles.
func stageColumns(roles []string) []column {
	widest := make([]Role, len(roles))
	for i, role := range roles {
		widest[i] = Role{Role: role, Busy: 1, Answers: 100}
	}
	all := []column{{"remote", 0}, {"ms/token p99", 0}, {"computing prompts", 0}, {"answers/engine", 0}}
	for i, text := range (&Stages{Roles: widest}).texts() {
		all[i].width = len(text)
	}
	return all
}

// texts returns the texts of the columns. Engines that only compute prompts have no answers.
func (s *Stages) texts() []string {
	var busy, answers []string
	for _, r := range s.Roles {
		busy = append(busy, fmt.Sprintf("%s %.0f %%", r.Role, 100*r.Busy))
		if r.Role != sim.RolePrefill {
			answers = append(answers, fmt.Sprintf("%s %.1f", r.Role, r.Answers))
		}
	}
	return []string{fmt.Sprintf("%.0f %%", 100*s.Remote), fmt.Sprintf("%.1f", 1000*s.Token.P99), strings.Join(busy, ", "),
		strings.Join(answers, ", ")}
}
